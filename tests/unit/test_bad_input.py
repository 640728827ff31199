"""Bad input by files and folders: the exact message of each, and nothing lost."""

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill.engine import Request
from gristmill.errors import ModelError, SetupError, StorageError
from gristmill.faults import Fault, FaultCode
from gristmill.models.directory import ModelDirectory
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings, load_settings
from gristmill.testing import FakeEngine

Drop = Callable[[str, bytes], Path]
LINE = b'{"id": "x", "text": "t"}\n'


@pytest.mark.parametrize(
    ("name", "content", "note", "stays"),
    [
        ("note/a.jsonl", b"", "a.jsonl holds no records", False),
        ("note/a.jsonl", b"\n \n\r\n", "a.jsonl holds no records", False),
        (
            "nte/a.jsonl",
            LINE,
            "nte/a.jsonl stays in the inbox: no schema 'nte' in {schemas}; did you mean 'note'?",
            True,
        ),
        (
            "a.jsonl",
            LINE,
            "a.jsonl stays in the inbox: the file lies directly in the inbox and no schema was given; "
            "put it into inbox/SCHEMA/ or pass schema",
            True,
        ),
        (
            "broken/a.jsonl",
            LINE,
            "broken/a.jsonl stays in the inbox: schema file broken.py fails to import at line 1: "
            "ZeroDivisionError: division by zero; mend the file, nothing was run with it",
            True,
        ),
        (
            "note/a.csv",
            LINE,
            "note/a.csv stays in the inbox: only .jsonl and .jsonl.gz files directly in it or in a folder named like "
            "a schema are taken",
            True,
        ),
        (
            "note/a.jsonl",
            gzip.compress(LINE, mtime=0),
            "note/a.jsonl stays in the inbox: a.jsonl is packed with gzip; name it .jsonl.gz",
            True,
        ),
        (
            "note/a.jsonl",
            LINE.decode().encode("utf-16"),
            "note/a.jsonl stays in the inbox: a.jsonl is UTF-16; save it as UTF-8",
            True,
        ),
        (
            "note/a.jsonl.gz",
            gzip.compress(LINE * 1000, mtime=0)[:-12],
            "note/a.jsonl.gz stays in the inbox: the gzip file a.jsonl.gz is damaged or cut short: "
            "Compressed file ended before the end-of-stream marker was reached; copy it again",
            True,
        ),
    ],
)
def test_files(
    drop: Drop, settings: Settings, schemas: Path, pipeline: Pipeline, name: str, content: bytes, note: str, stays: bool
) -> None:
    """A file that can't be taken stays and is named with the reason; a good one beside it is done."""
    (schemas / "broken.py").write_text("1 / 0\n")
    path = drop(name, content)
    drop("note/good.jsonl", LINE)
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    report = pipeline.run(run_id)
    assert report.notes == [note.format(schemas=schemas, inbox=settings.data / "inbox")]
    assert path.exists() is stays
    assert report.states["accepted"] == 1


def test_a_file_being_written_waits(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that changes while it is watched is left for the next run, and taken whole then."""
    path = drop("note/a.jsonl", LINE)

    def grow(seconds: float) -> None:
        path.write_bytes(LINE + LINE.replace(b"x", b"y"))

    pipeline = Pipeline(settings.model_copy(update={"settle_seconds": 5.0}), FakeEngine())
    monkeypatch.setattr("gristmill.intake.time.sleep", grow)
    run_id = pipeline.begin("extract")
    assert pipeline.take_in(run_id) == []
    assert pipeline.report(run_id).notes == ["a.jsonl is still being written; it is taken by the next run"]
    monkeypatch.setattr("gristmill.intake.time.sleep", lambda seconds: None)
    run_id = pipeline.begin("extract")
    assert [taken.file.lines for taken in pipeline.take_in(run_id)] == [2]


@pytest.mark.parametrize("name", ["note/.hidden.jsonl", "note/a.jsonl.part", "note/a.jsonl.tmp"])
def test_copies_in_progress_are_no_files(drop: Drop, pipeline: Pipeline, name: str) -> None:
    """Names that copying programs use for unfinished files are left alone without a word."""
    path = drop(name, LINE)
    run_id = pipeline.begin("extract")
    assert pipeline.take_in(run_id) == []
    assert pipeline.report(run_id).notes == []
    assert path.exists()


def test_a_text_over_the_context_is_dead_at_once(drop: Drop, settings: Settings) -> None:
    """A refusal by the engine before it starts is a permanent fault, and is not tried again."""

    def refuse(request: Request) -> Fault:
        return Fault(FaultCode.TOO_LONG, "9000 prompt tokens and up to 256 new ones exceed the model's context")

    pipeline = Pipeline(settings, FakeEngine(refuse))
    drop("note/a.jsonl", LINE)
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    assert pipeline.run(run_id).states["dead"] == 1


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("TOKEN_BUDGET", "lots", "GRISTMILL_TOKEN_BUDGET='lots': Input should be a valid integer"),
        ("CHUNK_RECORDS", "0", "GRISTMILL_CHUNK_RECORDS='0': Input should be greater than or equal to 1; nothing was"),
        ("PRESET", "extrat", "no preset 'extrat'; did you mean 'extract'?"),
    ],
)
def test_settings(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str) -> None:
    """A setting that can't be used is named with its value."""
    monkeypatch.setenv(f"GRISTMILL_{variable}", value)
    with pytest.raises(SetupError) as caught:
        load_settings()
    assert str(caught.value).startswith(message)


def test_a_database_url_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password in the database's URL stands in no message."""
    monkeypatch.setenv("GRISTMILL_DATABASE_URL", "not-a-url hunter2")
    settings = load_settings()
    assert "hunter2" not in repr(settings)
    with pytest.raises(SetupError) as caught:
        Pipeline(settings, FakeEngine())
    assert (
        str(caught.value)
        == "GRISTMILL_DATABASE_URL is not a database URL; use sqlite:///FILE or postgresql://USER@HOST/NAME"
    )


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            None,
            "no model directory '{path}': models are read from local directories and no hub is asked; give the path "
            "of one, or 'embedded' after `gristmill model fetch`",
        ),
        (
            ["config.json", "model.safetensors"],
            "model directory {path} lacks its tokenizer (tokenizer.json); it holds config.json, model.safetensors; "
            "copy the missing files of the model there",
        ),
        (
            [],
            "model directory {path} lacks its config.json and weights (*.safetensors) and tokenizer (tokenizer.json); "
            "it holds nothing; copy the missing files of the model there",
        ),
    ],
)
def test_model_directories(tmp_path: Path, files: list[str] | None, message: str) -> None:
    """A model directory that is not whole says what is missing."""
    path = tmp_path / "model"
    if files is not None:
        path.mkdir()
        for name in files:
            (path / name).write_text("{}")
    with pytest.raises(ModelError) as caught:
        ModelDirectory(path)
    assert str(caught.value) == message.format(path=path)


def test_the_embedded_model_before_it_is_fetched(settings: Settings, drop: Drop) -> None:
    """Without the model nothing is begun, no file leaves the inbox, and the message says how to get it."""
    path = drop("note/a.jsonl", LINE)
    with pytest.raises(ModelError, match=r"the embedded model is not in .*; run `gristmill model fetch` once"):
        Pipeline(settings).begin("extract")
    assert path.exists()


def test_a_damaged_database_is_not_an_empty_queue(settings: Settings, pipeline: Pipeline) -> None:
    """A queue file full of nonsense is an error that says so."""
    pipeline.queue._engine.dispose()
    for file in settings.data.glob("gristmill.sqlite3*"):
        file.unlink()
    (settings.data / "gristmill.sqlite3").write_bytes(b"nonsense" * 1000)
    with pytest.raises(StorageError) as caught:
        Pipeline(settings, FakeEngine())
    assert "file is not a database; nothing was changed; the file is damaged: put a backup" in str(caught.value)


def test_a_full_disk_loses_nothing(settings: Settings, drop: Drop, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the outbox can't be written the run fails with the way out; the next run writes it without generating."""
    import gristmill.outlet

    engine = FakeEngine()
    pipeline = Pipeline(settings, engine)
    drop("note/a.jsonl", LINE)
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gristmill.outlet.os, "fsync", full)
    with pytest.raises(StorageError) as caught:
        pipeline.run(run_id)
    assert str(caught.value) == (
        f"{settings.data}/outbox/note/a.jsonl: No space left on device; what was committed before is safe; "
        "free some space and run again"
    )
    assert list((settings.data / "outbox" / "note").iterdir()) == []
    monkeypatch.undo()
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    pipeline.run(run_id)
    assert len(engine.requests) == 1
    assert (settings.data / "outbox" / "note" / "a.jsonl").read_text().startswith('{"id": "x"')


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="needs a file system that nobody can write to")
def test_a_folder_that_cannot_be_written(settings: Settings) -> None:
    """A data folder on a read-only file system is refused before anything is read, with the way out."""
    with pytest.raises(StorageError) as caught:
        Pipeline(settings.model_copy(update={"data": Path("/sys/kernel/gristmill")}), FakeEngine())
    assert re.fullmatch(
        r"/sys/kernel/gristmill(/inbox)?: (Operation not permitted|Permission denied|Read-only file system); what was "
        r"committed before is safe; give the user who runs this the right to write there and run again",
        str(caught.value),
    )


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a b", "ä#1"])
def test_data_folders_of_any_name(settings: Settings, tmp_path: Path, name: str) -> None:
    """The database lies in the data folder, whatever that is called."""
    Pipeline(settings.model_copy(update={"data": tmp_path / name}), FakeEngine())
    assert (tmp_path / name / "gristmill.sqlite3").is_file()


def test_every_byte_level_case_in_one_file(drop: Drop, pipeline: Pipeline, settings: Settings) -> None:
    """A file that holds every kind of bad line beside good ones: bad ones are dead with their reason, the rest done."""
    cases = [
        (b'\xef\xbb\xbf{"id": "mark", "text": "t"}', None),
        (b'{"id": "crlf", "text": "t"}\r', None),
        (b"   ", None),
        ('{"id": "separators", "text": "a\u2028b\u2029c\x85d\x0ce"}'.replace("\x0c", "\\f").encode(), None),
        (b'{"text": "caf\xe9"}', "not_utf8"),
        (b'{"text": "t", "x": NaN}', "not_json"),
        (b'{"text": "t", "x": Infinity}', "not_json"),
        (b'{"text": "a", "text": "b"}', "duplicate_key"),
        (b'{"text": "t", "n": ' + b"9" * 5000 + b"}", "not_json"),
        (b'{"text": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "not_json"),
        (b'{"text": "\\ud800"}', "not_utf8"),
        (b'{"id": "a\\u0000b", "text": "t"}', "bad_id"),
        (b'{"text": "' + b"x" * 20_000_000 + b'"}', "line_too_long"),
        (b'{"id": "last", "text": "no newline"}', None),
    ]
    drop("note/a.jsonl", b"\n".join(line for line, _ in cases))
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    report = pipeline.run(run_id)
    outbox = (settings.data / "outbox" / "note" / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in outbox] == ["mark", "crlf", "separators", "last"]
    assert [json.loads(line)["line"] for line in outbox] == [1, 2, 4, 14]
    dead = (settings.data / "dead" / "note" / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["error"]["code"] for line in dead] == [code for _, code in cases if code]
    assert report.files[0].lines == 13


def test_a_line_of_50_mb(drop: Drop, settings: Settings) -> None:
    """It is dead with its size and the way out, only its start is kept, and memory holds no more than the limit."""
    import tracemalloc

    line = b'{"id": "long", "text": "' + b"x" * 50_000_000 + b'"}\n'
    path = drop("note/a.jsonl", LINE + line + b'{"id": "y", "text": "t"}\n')
    pipeline = Pipeline(settings.model_copy(update={"max_line_bytes": 1_000_000}), FakeEngine())
    run_id = pipeline.begin("extract")
    schema = pipeline.schema("note")
    del line
    tracemalloc.start()
    taken = pipeline.take_file(run_id, path, schema, again=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken is not None
    assert peak < 8_000_000
    assert pipeline.run(run_id).states["accepted"] == 2
    (told,) = (settings.data / "dead" / "note" / "a.jsonl").read_text().splitlines()
    error = json.loads(told)["error"]
    assert error["code"] == "line_too_long"
    assert error["message"] == (
        "the line has 50,000,026 bytes, over the 1,000,000 of GRISTMILL_MAX_LINE_BYTES; its start is kept here, the "
        "whole stands in the archived file; shorten it, or raise the setting and take the file in again (--again)"
    )
    assert len(told) < 2000


def test_large_lines_are_held_a_few_at_a_time(drop: Drop, settings: Settings) -> None:
    """Two dozen lines of 2 MB go all the way through without the chunk of them ever being in memory at once."""
    import tracemalloc

    text = b"x" * 2_000_000
    drop("note/a.jsonl.gz", gzip.compress(b"".join(b'{"id": "%d", "text": "%s"}\n' % (n, text) for n in range(24))))
    pipeline = Pipeline(settings, FakeEngine(batch=1))
    pipeline.schema("note")
    # The fake keeps what it was asked.
    pipeline._engine.requests = Nothing()  # type: ignore[union-attr, assignment]
    tracemalloc.start()
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    report = pipeline.run(run_id)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.states["accepted"] == 24
    assert peak < 36_000_000


class Nothing(list):  # type: ignore[type-arg]
    """A list that keeps nothing."""

    def append(self, value: object) -> None:
        """Forget it."""
