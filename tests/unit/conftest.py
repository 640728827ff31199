"""What fast tests share: a data folder of their own, a schemas folder, and pipelines over a fake engine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill.engine import owner
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings, load_settings
from gristmill.testing import FakeEngine

NOTE_SCHEMA = '''
from typing import Annotated

from pydantic import BaseModel, Field

from gristmill import Example


class Note(BaseModel):
    """Read the note."""

    title: Annotated[str, Field(max_length=40)] = Field(description="what it is about")
    stars: Annotated[int, Field(ge=1, le=5)] = Field(description="how good it was")


EXAMPLES = [Example("great pizza, five stars", Note(title="pizza", stars=5))]
'''


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting, cache or loaded model of the machine reaches a fast test."""
    import os

    for name in [name for name in os.environ if name.startswith("GRISTMILL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    owner.release()


@pytest.fixture
def schemas(tmp_path: Path) -> Path:
    """A schemas folder with one schema, `note`."""
    folder = tmp_path / "schemas"
    folder.mkdir()
    (folder / "note.py").write_text(NOTE_SCHEMA)
    return folder


@pytest.fixture
def settings(tmp_path: Path, schemas: Path) -> Settings:
    """Settings with folders of the test's own and no waiting for files to settle."""
    return load_settings(data=tmp_path / "data", schemas=schemas, settle_seconds=0)


@pytest.fixture
def drop(settings: Settings) -> Callable[[str, bytes], Path]:
    """Put bytes into the inbox under a path."""

    def put(name: str, content: bytes) -> Path:
        path = settings.data / "inbox" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return put


@pytest.fixture
def pipeline(settings: Settings) -> Pipeline:
    """A pipeline whose engine answers every record rightly."""
    return Pipeline(settings, FakeEngine())
