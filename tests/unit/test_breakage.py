"""What somebody broke once: each is a kind of thing that must not happen again."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gristmill import intake, pruning
from gristmill.engine import Request
from gristmill.errors import SetupError, StorageError
from gristmill.faults import Fault, FaultCode
from gristmill.outlet import dead_line
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings
from gristmill.store import RecordState, open_database
from gristmill.store import owner as owners
from gristmill.testing import FakeEngine, first_example

Drop = Callable[[str, bytes], Path]
LINE = b'{"id": "x", "text": "t"}\n'
OTHER = b'{"id": "y", "text": "t"}\n'
BAD = '{"title": "soup", "stars": 9}'


@pytest.fixture
def settings(settings: Settings, database_url: str) -> Settings:
    """Every test here runs on both databases."""
    return settings.model_copy(update={"database_url": SecretStr(database_url)})


def extract(pipeline: Pipeline) -> dict[str, int]:
    """One extract run; its records by state."""
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    return pipeline.run(run_id).states


@pytest.mark.parametrize("change", ["replaced", "appended"])
def test_only_what_was_read_is_archived(
    change: str, drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file of the name, or more of the old one, that comes while it is taken in is taken by the next run."""
    pipeline = Pipeline(settings, FakeEngine())
    path = drop("note/a.jsonl", LINE)
    archive = intake.archive

    def late(*arguments: Any) -> None:
        if change == "replaced":
            drop("note/new.part", OTHER).replace(path)
        else:
            path.write_bytes(LINE + OTHER)
        archive(*arguments)

    monkeypatch.setattr(intake, "archive", late)
    assert extract(pipeline)["accepted"] == 1
    assert path.exists()
    monkeypatch.setattr(intake, "archive", archive)
    assert extract(pipeline)["accepted"] == (1 if change == "replaced" else 2)
    assert not path.exists()


def test_killed_while_archiving(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that a killed process had set aside comes back into the inbox, beside a new one of its name."""
    pipeline = Pipeline(settings, FakeEngine())
    room = drop("note/.aside.HOST.999999/a.jsonl", LINE).parent
    room.rename(room.with_name(f".aside.{socket.gethostname()}.999999"))
    drop("note/a.jsonl", OTHER)
    assert extract(pipeline)["accepted"] == 2
    assert sorted(p.name for p in (settings.data / "archive" / "note").iterdir()) == ["a-2.jsonl", "a.jsonl"]
    assert list((settings.data / "inbox" / "note").iterdir()) == []


def test_an_archive_elsewhere_and_links(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive on another file system gets a copy, and so does one of a file that was a link."""
    pipeline = Pipeline(settings, FakeEngine())
    elsewhere = settings.data / "elsewhere.jsonl"
    elsewhere.write_bytes(LINE)
    link = drop("note/b.jsonl", b"")
    link.unlink()
    link.symlink_to(elsewhere)
    drop("note/a.jsonl", OTHER)
    replace = Path.replace

    def on_one_system_only(self: Path, target: Path) -> Path:
        if "inbox" in self.parts and "archive" in target.parts:
            raise OSError(18, "Invalid cross-device link")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", on_one_system_only)
    assert extract(pipeline)["accepted"] == 2
    archived = settings.data / "archive" / "note"
    assert [(p.name, p.read_bytes(), p.is_symlink()) for p in sorted(archived.iterdir())] == [
        ("a.jsonl", OTHER, False),
        ("b.jsonl", LINE, False),
    ]


def test_a_file_requeued_after_the_plan_is_not_pruned(drop: Drop, settings: Settings) -> None:
    """A record that somebody put in again between plan and removal keeps its file."""
    pipeline = Pipeline(settings, FakeEngine(lambda r: BAD))
    drop("note/a.jsonl", LINE)
    extract(pipeline)
    pipeline.drop()
    plan = pruning.plan(pipeline, time.time() + 1)
    assert len(plan.files) == 1
    pipeline.requeue()
    assert pruning.prune(pipeline, plan) == 0
    assert [row.state for row in pipeline.desk.rows([RecordState.QUEUED])] == [RecordState.QUEUED]
    assert (settings.data / "archive" / "note" / "a.jsonl").exists()


def test_outputs_of_what_was_pruned_meanwhile_stay(
    drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was about to write a file's outputs when it was pruned leaves them as they are."""
    pipeline = Pipeline(settings, FakeEngine())
    drop("note/a.jsonl", LINE)
    extract(pipeline)
    written = (settings.data / "outbox" / "note" / "a.jsonl").read_text()
    (file,) = pipeline.ledger.files()
    pruning.prune(pipeline, pruning.plan(pipeline, time.time() + 1))
    pipeline.rewrite(file)
    assert (settings.data / "outbox" / "note" / "a.jsonl").read_text() == written
    publish = pipeline.outputs.publish

    drop("note/b.jsonl", OTHER)
    extract(pipeline)
    kept = (settings.data / "outbox" / "note" / "b.jsonl").read_text()

    def late(*arguments: Any) -> bool:
        pruning.prune(pipeline, pruning.plan(pipeline, time.time() + 1))
        return publish(*arguments)

    monkeypatch.setattr(pipeline.outputs, "publish", late)
    pipeline.rewrite(pipeline.ledger.files()[1])
    assert (settings.data / "outbox" / "note" / "b.jsonl").read_text() == kept


def test_two_files_with_one_archived_copy(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a content that two files have goes with the last of them."""
    first = Pipeline(settings, FakeEngine())
    drop("note/a.jsonl", LINE)
    extract(first)
    second = Pipeline(settings.model_copy(update={"preset": "stable"}), FakeEngine(lambda r: BAD))
    drop("note/a.jsonl", LINE)
    extract(second)
    plan = pruning.plan(first, time.time() + 1)
    assert [going.archived for going in plan.files] == [()]


def test_a_run_that_goes_on_keeps_its_row(drop: Drop, settings: Settings) -> None:
    """A run that has begun and done nothing yet is not pruned away under itself."""
    pipeline = Pipeline(settings, FakeEngine())
    run_id = pipeline.begin("extract")
    assert pruning.plan(pipeline, time.time() + 1).runs == ()
    drop("note/a.jsonl", LINE)
    pipeline.take_in(run_id)
    assert pipeline.run(run_id).states["accepted"] == 1


@pytest.mark.parametrize("depth", [99, 101, 600, 960])
def test_nesting_does_not_depend_on_the_stack(depth: int, drop: Drop, settings: Settings) -> None:
    """What is taken in can be read again under any stack, and a line with escapes is no different."""
    nested = b"[" * depth + b"]" * depth
    drop("note/a.jsonl", b'{"id": "n", "text": "\\u0041", "v": ' + nested + b"}\n" + LINE)

    def deeper(levels: int) -> dict[str, int]:
        return deeper(levels - 1) if levels else extract(Pipeline(settings, FakeEngine()))

    states = deeper(200)
    assert (states["accepted"], states["dead"]) == ((2, 0) if depth < 100 else (1, 1))


def test_an_engine_that_breaks(drop: Drop, settings: Settings) -> None:
    """A record that breaks the engine each time is dead after its attempts; those behind and beside it are done."""

    def breaks(request: Request) -> str:
        if request.record.id == "r1":
            raise RuntimeError("CUDA error")
        return first_example(request)

    drop("note/a.jsonl", b"".join(b'{"id": "r%d", "text": "t"}\n' % n for n in range(12)))
    for kind in ("extract", "extract", *["retry"] * 6):
        pipeline = Pipeline(settings, FakeEngine(breaks, batch=4))
        run_id = pipeline.begin(kind)
        pipeline.take_in(run_id)
        try:
            pipeline.run(run_id, ignore_due=True)
        except RuntimeError:
            continue
    pipeline = Pipeline(settings, FakeEngine())
    pipeline.run(pipeline.begin("retry"), ignore_due=True)
    assert [row.record_id for row in pipeline.desk.rows([RecordState.DEAD])] == ["r1"]
    assert len(pipeline.desk.rows([RecordState.ACCEPTED])) == 11


def test_one_attempt_is_not_used_up_by_a_neighbour(
    drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a single attempt allowed, records of a process that died are still tried, alone."""

    class Dies(BaseException):
        pass

    def dies(request: Request) -> str:
        raise Dies

    drop("note/a.jsonl", LINE + OTHER)
    single = settings.model_copy(update={"max_attempts": 1})
    pipeline = Pipeline(single, FakeEngine(dies))
    monkeypatch.setattr(pipeline.queue, "give_back", lambda lease: 0)
    with pytest.raises(Dies):
        extract(pipeline)
    monkeypatch.setattr(owners, "lives", lambda name: False)
    again = Pipeline(single, FakeEngine())
    assert extract(again)["queued"] == 2
    assert again.run(again.begin("retry"), ignore_due=True).states["accepted"] == 2


def test_a_reader_that_never_comes_back(drop: Drop, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file half read on a machine that is gone is left to it for a while, with a note, and then taken."""
    pipeline = Pipeline(settings, FakeEngine())
    drop("note/a.jsonl", LINE)
    original = intake.bounded_lines

    def breaks_off(source: Any, most: int) -> Any:
        yield from original(source, most)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owners, "owner", lambda: "elsewhere:1:1")
        patch.setattr(intake, "bounded_lines", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            pipeline.take_in(pipeline.begin("extract"))
    monkeypatch.setattr("gristmill.pipeline._READING_SECONDS", 0.01)
    monkeypatch.setattr("gristmill.store.ledger._READING_LAPSES_SECONDS", 0.3)
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    assert pipeline.run(run_id).notes == ["note/a.jsonl is being taken in by another run"]
    assert extract(pipeline)["accepted"] == 1


def test_a_slow_step_keeps_its_lease(drop: Drop, settings: Settings) -> None:
    """A record that takes longer than a lease lasts is not taken away from a process that works on it."""
    slow = settings.model_copy(update={"lease_seconds": 0.4})
    seen: list[int] = []

    def takes_long(request: Request) -> str:
        time.sleep(1.0)
        other = Pipeline(slow, FakeEngine())
        seen.append(other.queue.recover("other", lease_seconds=1).records)
        return first_example(request)

    drop("note/a.jsonl", LINE)
    assert extract(Pipeline(slow, FakeEngine(takes_long)))["accepted"] == 1
    assert seen == [0]


def test_one_output_that_can_not_be_written(drop: Drop, settings: Settings) -> None:
    """A folder where a result should be stops that result, and no other; the run says which."""
    pipeline = Pipeline(settings, FakeEngine())
    (settings.data / "outbox" / "note").mkdir(parents=True)
    drop("note/a.jsonl", LINE)
    drop("note/b.jsonl", OTHER)
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    (settings.data / "outbox" / "note" / "a.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"outbox/note"):
        pipeline.run(run_id)
    assert (settings.data / "outbox" / "note" / "b.jsonl").is_file()


def test_long_names(drop: Drop, settings: Settings) -> None:
    """The longest names that a file system allows, and names that were given a hash before, find a place."""
    packed = settings.model_copy(update={"compress": True})
    drop(f"note/{'n' * 249}.jsonl", LINE)
    assert extract(Pipeline(packed, FakeEngine(name="m" * 300)))["accepted"] == 1


def test_results_of_unknown_origin_are_not_written_over(drop: Drop, settings: Settings) -> None:
    """What lies in the outbox and is of no file in the store keeps its name."""
    pipeline = Pipeline(settings, FakeEngine())
    folder = settings.data / "outbox" / "note"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text("precious\n")
    drop("note/a.jsonl", LINE)
    extract(pipeline)
    assert (folder / "a.jsonl").read_text() == "precious\n"
    assert len(list(folder.glob("a-*.jsonl"))) == 1


def test_a_validator_that_breaks_the_text(drop: Drop, settings: Settings, schemas: Path) -> None:
    """Half of a surrogate pair that a validator puts in makes that answer invalid, and ends no run."""
    (schemas / "odd.py").write_text(
        "from pydantic import BaseModel, field_validator\n"
        "class Odd(BaseModel):\n    name: str\n"
        "    @field_validator('name')\n    @classmethod\n    def odd(cls, v): return '\\ud800'\n"
    )
    drop("odd/a.jsonl", LINE)
    drop("note/b.jsonl", OTHER)
    states = extract(
        Pipeline(
            settings, FakeEngine(lambda r: '{"name": "x"}' if r.schema.name == "odd" else '{"title": "x", "stars": 1}')
        )
    )
    assert (states["accepted"], states["queued"]) == (1, 1)


@pytest.mark.parametrize(
    "raw", [b'{"text": "x", "v": NaN}', b'{"text": "x", "v": 1e999, "error": 1}', b'{"custom_id": "c", "body": NaN}']
)
def test_dead_lines_are_json(raw: bytes) -> None:
    """Whatever stood in a dead line, what is written of it is JSON."""

    def no_constant(name: str) -> None:
        raise AssertionError(name)

    json.loads(dead_line(1, raw, Fault(FaultCode.NOT_JSON, "no"), "k" * 64), parse_constant=no_constant)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:hunter2@host:port/db", "is not a database URL"),
        ("postgresql://me:hunt@er2@host/db", "a name or password in it holds an @; write that as %40"),
        ("postgresql+asyncpg://me:hunter2@host/db", "'postgresql+asyncpg' is not supported"),
        ("sqlite://", "a database in memory would lose everything"),
        ("sqlite:///:memory:", "a database in memory would lose everything"),
    ],
)
def test_addresses_that_can_not_be_used(url: str, message: str) -> None:
    """Each says what is wrong with it, and none shows a part of a password."""
    with pytest.raises(SetupError) as caught:
        open_database(url)
    assert message in str(caught.value)
    assert "er2" not in str(caught.value)


def test_a_password_among_the_options() -> None:
    """A password in a URL's query is not shown when the server can't be reached."""
    with pytest.raises(StorageError) as caught:
        open_database("postgresql://me@127.0.0.1:1/db?password=hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_database_that_went_away(settings: Settings, drop: Drop) -> None:
    """An empty file, or none beside results, is no empty queue."""
    if settings.database_url.get_secret_value():
        pytest.skip("a file of SQLite's")
    pipeline = Pipeline(settings, FakeEngine())
    drop("note/a.jsonl", LINE)
    extract(pipeline)
    pipeline.close()
    for file in settings.data.glob("gristmill.sqlite3*"):
        file.unlink()
    with pytest.raises(StorageError, match=r"gristmill.sqlite3 is not there, but .*a.jsonl is a result of it"):
        Pipeline(settings, FakeEngine())
    file = settings.data / "gristmill.sqlite3"
    file.touch()
    os.utime(file, (1, 1))
    with pytest.raises(StorageError, match="the file is empty; nothing was changed; the file is damaged: put a backup"):
        Pipeline(settings, FakeEngine())


def test_this_process_is_told_from_every_other() -> None:
    """A process lives under the name that it has, and under no other of the same id."""
    name = owners.owner()
    assert owners.lives(name)
    assert not owners.lives(f"{name}1")
    assert not owners.lives(f"{socket.gethostname()}:999999:1.00")
    assert owners.lives("elsewhere:1:1.00")
