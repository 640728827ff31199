"""The tables' earlier forms: every one of them becomes the present one, with its rows."""

import socket
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, inspect, text

from gristmill.errors import SetupError
from gristmill.pipeline import Pipeline
from gristmill.settings import Settings, load_settings
from gristmill.store import Invariants, Queue, RecordState, migrations, open_database
from gristmill.store.tables import metadata
from gristmill.testing import FakeEngine

GONE = f"{socket.gethostname()}:999999:1.00"
"""A process of this machine that is no more."""


@pytest.fixture
def url(database_url: str, tmp_path: Path) -> str:
    """An empty database, of each kind."""
    return database_url.replace("postgresql://", "postgresql+psycopg://") or f"sqlite:///{tmp_path / 'old.sqlite3'}"


def first_form(url: str) -> None:
    """A database as the first version made it, with rows in every state, and no word of its form."""
    engine = create_engine(url)
    with engine.begin() as db:
        _upgrade(db, "0001")
        db.execute(text("DROP TABLE alembic_version"))
        db.execute(
            text("INSERT INTO runs VALUES ('r1', 'extract', :gone, '{}', 1.0, NULL, 0.0, '[]', '[]')"),
            {"gone": GONE},
        )
        db.execute(
            text(
                "INSERT INTO files VALUES (1, 'k', 'c', 'note', 'extract', 'm', 'a', 'a', 1, 6, 0, 'r1', 5.0, "
                ":gone, 1, 1)"
            ),
            {"gone": GONE},
        )
        for pk, state, attempts, lease, output, fault in (
            (1, "waiting", 0, None, None, None),
            (2, "leased", 0, "l1", None, None),
            (3, "leased", 1, "l1", None, None),
            (4, "accepted", 1, None, '{"title": "soup", "stars": 3}', None),
            (5, "queued", 1, None, None, "invalid"),
            (6, "dead", 0, None, None, "not_json"),
        ):
            fault_json = f'{{"code": "{fault}", "message": "m", "details": []}}' if fault else None
            db.execute(
                text(
                    "INSERT INTO records VALUES (:pk, 1, :pk, :id, :raw, :state, :attempts, 0, 'extract', 256, 0.0, "
                    ":lease, :owner, :until, 'r1', :fault, :fault_json, :output, NULL)"
                ),
                {
                    "pk": pk,
                    "id": f"x{pk}",
                    "raw": b'{"text": "t"}',
                    "state": state,
                    "attempts": attempts,
                    "lease": lease,
                    "owner": GONE if lease else None,
                    "until": 9e9 if lease else None,
                    "fault": fault,
                    "fault_json": fault_json,
                    "output": output,
                },
            )
        for pk, verdict, settled in ((3, "accepted", 0), (4, "accepted", 1), (5, "invalid", 1)):
            db.execute(
                text(
                    "INSERT INTO attempts VALUES (:pk, :pk, 1, 'r1', 'extract', 256, 'm', 1.0, 2.0, "
                    '\'{"title": "soup", "stars": 3}\', \'stop\', 1, 1, :verdict, NULL, :settled)'
                ),
                {"pk": pk, "verdict": verdict, "settled": settled},
            )
    engine.dispose()


def _upgrade(db: Connection, revision: str) -> None:
    from alembic import command

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.attributes["connection"] = db
    command.upgrade(config, revision)


def test_the_last_revision_is_the_head() -> None:
    """The revision that the code asks for is the last one that there is."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    assert ScriptDirectory.from_config(config).get_heads() == [migrations.HEAD]


def test_a_new_database_is_as_the_tables_say(url: str) -> None:
    """What the migrations make is what `tables` describes, checks included."""
    engine = open_database(url)
    with engine.connect() as db:
        assert compare_metadata(MigrationContext.configure(db), metadata) == []
        checks = {check["name"] for check in inspect(db).get_check_constraints("records")}
    assert checks == {f"records_{name}" for name in ("state", "leased", "accepted", "dead", "settled")}
    engine.dispose()


def test_rows_of_the_first_form_live_on(url: str) -> None:
    """No row is lost; what was in hand comes back, and what was judged and not moved on is judged again."""
    first_form(url)
    engine = open_database(url)
    queue = Queue(engine)
    with engine.connect() as db:
        states = dict(db.execute(text("SELECT id, state FROM records")).all())
    assert states == {1: "waiting", 2: "leased", 3: "leased", 4: "accepted", 5: "queued", 6: "dead"}
    orphans = queue.recover("r2", lease_seconds=100)
    assert orphans.records == 1
    assert [(u.pk, u.attempt) for u in queue.unjudged(orphans.lease)] == [(3, 1)]
    waiting = queue.claim("r2", [RecordState.WAITING], 9, lease_seconds=9, schemas=["note"], due_by=float("inf"))
    assert waiting.records == 2
    assert list(Invariants(engine).broken()) == []
    queue.give_back(waiting.lease)
    queue.give_back(orphans.lease)
    engine.dispose()


def test_a_run_goes_on_in_an_old_database(url: str, schemas: Path, tmp_path: Path) -> None:
    """The first run after the change finishes what the old version began, and writes the outputs anew."""
    first_form(url)
    settings: Settings = load_settings(data=tmp_path / "data", schemas=schemas, settle_seconds=0.0, database_url=url)
    pipeline = Pipeline(settings, FakeEngine())
    report = pipeline.run(pipeline.begin("extract"))
    assert report.files[0].states == {"waiting": 0, "leased": 0, "accepted": 4, "queued": 1, "dead": 1}
    assert len((tmp_path / "data" / "outbox" / "note" / "a.jsonl").read_text().splitlines()) == 4
    pipeline.close()


def test_a_newer_database_is_left_alone(url: str) -> None:
    """A form that this version does not know is refused, with the way out, and nothing is changed."""
    engine = open_database(url)
    with engine.begin() as db:
        db.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SetupError, match="the database has the form '9999', this version of gristmill knows forms"):
        open_database(url)
    with engine.begin() as db:
        assert db.execute(text("SELECT version_num FROM alembic_version")).scalar_one() == "9999"
    engine.dispose()


def test_ids_are_never_used_twice(url: str) -> None:
    """A row of a reader that died can't come to stand for another file."""
    engine = open_database(url)
    insert = text(
        "INSERT INTO files (key, content_sha256, schema, preset, model, name, output_name, complete, lines, "
        "duplicate_ids, run_id, read_at, reader, version, written_version) "
        "VALUES (:k, '', 's', 'p', 'm', 'n', :k, 1, 0, 0, 'r', 1.0, 'x', 1, 1) RETURNING id"
    )
    with engine.begin() as db:
        db.execute(text("INSERT INTO runs VALUES ('r', 'extract', 'o', '{}', 1.0, NULL, 0.0, '[]', '[]')"))
        first = db.execute(insert, {"k": "a"}).scalar_one()
        db.execute(text("DELETE FROM files"))
        assert db.execute(insert, {"k": "b"}).scalar_one() > first
    engine.dispose()
