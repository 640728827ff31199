"""Databases that are locked, full, read-only, damaged or gone: a clear error, nothing lost, never an empty queue."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import event, text

from gristmill.doctor import examine
from gristmill.engine import Request
from gristmill.errors import SetupError, StorageError
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings, load_settings
from gristmill.store import RecordState, open_database
from gristmill.testing import FakeEngine, first_example
from tests.postgres import Server, server
from tests.unit.conftest import NOTE_SCHEMA


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A data folder with 200 records in the inbox, and a schemas folder."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "note.py").write_text(NOTE_SCHEMA)
    inbox = tmp_path / "data" / "inbox" / "note"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text("".join(f'{{"id": "{i}", "text": "{"t" * 500}"}}\n' for i in range(200)))
    return load_settings(data=tmp_path / "data", schemas=tmp_path / "schemas", settle_seconds=0.0, chunk_records=50)


def extract(pipeline: Pipeline) -> dict[str, int]:
    """One extract run; the states of its file afterwards."""
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    return pipeline.run(run_id).files[0].states


def counted(pipeline: Pipeline) -> int:
    """All records of all files."""
    return sum(sum(pipeline.figures.states_of_file(file.id).values()) for file in pipeline.ledger.files())


def test_locked(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that another process holds for too long is an error that says so; afterwards the run goes on."""
    monkeypatch.setattr("gristmill.store.database._BUSY_SECONDS", 0.2)
    pipeline = Pipeline(settings, FakeEngine())
    holder = sqlite3.connect(settings.data / "gristmill.sqlite3", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageError) as caught:
        pipeline.begin("extract")
    assert str(caught.value) == (
        "the database: database is locked; what was committed before is safe; another process holds it; end that or "
        "run again later"
    )
    holder.execute("ROLLBACK")
    assert extract(pipeline)["accepted"] == 200


def test_full(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk is full in the middle of a run, what was committed stays; once there is room, the next goes on."""
    pipeline = Pipeline(settings, FakeEngine(batch=4))
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)

    def limit(connection: sqlite3.Connection, _record: object) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count={pages + 2}")

    pipeline.close()
    event.listen(pipeline._database, "connect", limit)
    with pytest.raises(StorageError, match=r"database or disk is full; what was committed .* free some space and run"):
        pipeline.run(run_id)
    pipeline.close()
    event.remove(pipeline._database, "connect", limit)
    assert counted(pipeline) == 200
    # The process ends with such an error; here it lives on.
    monkeypatch.setattr("gristmill.store.owner.lives", lambda owner: False)
    states = extract(Pipeline(settings, FakeEngine()))
    assert states["accepted"] + states["queued"] == 200


def test_read_only(settings: Settings) -> None:
    """A database that may only be read is refused before anything is done; the file stays in the inbox."""
    extract(Pipeline(settings, FakeEngine()))
    file = settings.data / "gristmill.sqlite3"
    url = SecretStr(f"sqlite:///file:{file}?mode=ro&uri=true")
    pipeline = Pipeline(settings.model_copy(update={"database_url": url}), FakeEngine())
    dropped = settings.data / "inbox" / "note" / "b.jsonl"
    dropped.write_text('{"text": "t"}\n')
    with pytest.raises(StorageError, match=r"attempt to write a readonly database; .* give the user who runs this"):
        extract(pipeline)
    assert dropped.exists()


def test_damaged_in_the_middle(settings: Settings) -> None:
    """Pages overwritten in a database that still opens: the doctor says so, and their rows are not taken for gone."""
    extract(Pipeline(settings, FakeEngine()))
    file = settings.data / "gristmill.sqlite3"
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(file.read_bytes())
    pages = len(content) // 4096
    for page in range(pages * 2 // 3, pages - 2, 3):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(content)
    damaged = Pipeline(settings, FakeEngine())
    assert next(examine(damaged)).broken
    with pytest.raises(StorageError) as caught:
        damaged.desk.rows([RecordState.ACCEPTED])
    assert str(caught.value) == (
        "the database: database disk image is malformed; nothing was changed; the file is damaged: put a backup in its "
        "place, or move it away to start with an empty queue"
    )


def test_a_missing_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database of a kind that can't be reached says what to install, or what is supported."""
    with pytest.raises(SetupError, match=r"'mysql' is not supported; use sqlite:///FILE or postgresql://"):
        open_database("mysql://user:hunter2@localhost/x")
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(SetupError, match=r"is not installed; pip install 'gristmill\[postgres\]'"):
        open_database("postgresql://user:hunter2@localhost/x")


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A PostgreSQL server that the test may stop."""
    try:
        with server() as running:
            yield running
    except LookupError as error:
        pytest.skip(str(error))


def test_postgresql_goes_away(settings: Settings, own_server: Server) -> None:
    """A server that ends in the middle of a run is an error that says what to look at; then the run goes on."""
    url = own_server.url().replace("postgres@", "postgres:hunter2@")
    settings = settings.model_copy(update={"database_url": SecretStr(url)})

    def stops_it(request: Request) -> str:
        if request.record.id == "120":
            own_server.stop()
        return first_example(request)

    pipeline = Pipeline(settings, FakeEngine(stops_it))
    with pytest.raises(StorageError) as caught:
        extract(pipeline)
    assert "see that the server runs and that its address, user and password" in str(caught.value)
    with pytest.raises(StorageError) as caught:
        Pipeline(settings, FakeEngine())
    assert "hunter2" not in str(caught.value)
    assert "see that the server runs" in str(caught.value)
    own_server.start()
    again = Pipeline(settings, FakeEngine())
    assert counted(again) == 200
    # The process that had it in hand lives on here, so its lease has to lapse first.
    with again._database.begin() as db:
        db.execute(text("UPDATE leases SET until = 0"))
    states = extract(again)
    assert states["accepted"] + states["queued"] == 200
    again.run(again.begin("retry"), ignore_due=True)
    assert not again.ledger.unfinished()
    again.close()
    pipeline.close()
