"""Settings: which source wins, what is told of it, and that secrets stay secret."""

from pathlib import Path

import pytest

from gristmill.errors import SetupError
from gristmill.settings import for_schedules, load_settings, misspelt, sources


def test_the_order_of_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Option, environment, .env, fallback, default: each wins over those behind it, and is named."""
    (tmp_path / ".env").write_text("GRISTMILL_SEED=3\nGRISTMILL_DEVICE=cpu\nGRISTMILL_PRESET=chat\n")
    monkeypatch.setenv("GRISTMILL_SEED", "2")
    monkeypatch.setenv("GRISTMILL_PRESET", "code")
    fallback = {"seed": 4, "device": "cuda:0", "chunk_records": "7"}
    settings = load_settings(fallback, preset="stable")
    assert (settings.preset, settings.seed, settings.device, settings.chunk_records) == ("stable", 2, "cpu", 7)
    told = {row.variable.removeprefix("GRISTMILL_"): row.source for row in sources(settings, fallback, "variable")}
    assert {name: told[name] for name in ("SEED", "DEVICE", "CHUNK_RECORDS", "DTYPE")} == {
        "SEED": "environment",
        "DEVICE": ".env",
        "CHUNK_RECORDS": "variable",
        "DTYPE": "default",
    }


def test_an_option_is_told(tmp_path: Path) -> None:
    """What no other source gives and is not the default came as an option."""
    (row,) = [row for row in sources(load_settings(seed=5)) if row.source != "default"]
    assert (row.variable, row.value, row.source) == ("GRISTMILL_SEED", "5", "option")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://.../db"),
        ("hunter2", "(set, but no database URL)"),
        ("", ""),
    ],
)
def test_secrets_are_masked(url: str, shown: str) -> None:
    """A password is never among what is told."""
    (row,) = [row for row in sources(load_settings(database_url=url)) if row.variable == "GRISTMILL_DATABASE_URL"]
    assert row.value == shown


def test_an_unknown_name_in_the_fallback() -> None:
    """A misspelt name is an error with the nearest one."""
    with pytest.raises(SetupError, match="no setting 'chunk_record'; did you mean 'chunk_records'"):
        load_settings({"chunk_record": 1})


def test_a_misspelt_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A variable with the prefix that nothing reads is a warning with the nearest name and without its value."""
    (tmp_path / ".env").write_text("GRISTMILL_SEEED=3\nOTHER=4\n")
    monkeypatch.setenv("GRISTMILL_CHUNK_RECORD", "hunter2")
    monkeypatch.setenv("gristmill_qqq", "1")
    monkeypatch.setenv("GRISTMILL_CACHE", "x")
    monkeypatch.setenv("GRISTMILL_SERVE_PORT", "4300")
    load_settings()
    assert [record.message for record in caplog.records] == [
        "GRISTMILL_CHUNK_RECORD is no setting and has no effect; did you mean GRISTMILL_CHUNK_RECORDS?",
        "GRISTMILL_QQQ is no setting and has no effect; `gristmill config` lists those that there are",
        "GRISTMILL_SEEED in .env is no setting and has no effect; did you mean GRISTMILL_SEED?",
    ]


def test_every_known_variable_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting that there is counts as misspelt, in capitals or not."""
    for row in sources(load_settings()):
        monkeypatch.setenv(row.variable, "1")
        monkeypatch.setenv(row.variable.lower(), "1")
    assert misspelt() == []


def test_what_schedules_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time zone of schedules: UTC, or what the fallback says, or what the environment says, which wins."""
    assert for_schedules("") == {"timezone": "UTC"}
    assert for_schedules({"timezone": "Asia/Tokyo", "seed": 3}) == {"timezone": "Asia/Tokyo"}
    monkeypatch.setenv("GRISTMILL_TIMEZONE", "Europe/Berlin")
    assert for_schedules({"timezone": "Asia/Tokyo"}) == {"timezone": "Europe/Berlin"}
