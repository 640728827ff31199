"""SIGTERM and Ctrl-C: what is in hand is finished or given back, and the next run goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.store import RecordState
from gristmill.testing import FakeEngine
from tests.unit.conftest import NOTE_SCHEMA

ROOT = Path(__file__).parents[2]
RECORDS = 400


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a file in its inbox, beside a schemas folder."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "note.py").write_text(NOTE_SCHEMA)
    inbox = tmp_path / "data" / "inbox" / "note"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text("".join(f'{{"id": "r{i}", "text": "t"}}\n' for i in range(RECORDS)))
    return tmp_path / "data"


@pytest.fixture(scope="module")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Prefect's temporary servers keep their database."""
    return tmp_path_factory.mktemp("prefect")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("command", ["gristmill run", "flow"])
def test_stopped(command: str, number: signal.Signals, status: int, data: Path, prefect_home: Path) -> None:
    """Stopped with all of its children, as a terminal and a service manager do, it gives back what it had in hand."""
    environment = os.environ | {
        "GRISTMILL_DATA": str(data),
        "GRISTMILL_SCHEMAS": str(data.parent / "schemas"),
        "GRISTMILL_SETTLE_SECONDS": "0",
        "PREFECT_HOME": str(prefect_home),
    }
    environment.pop("PREFECT_API_URL", None)
    ours = ["gristmill", "run", str(data / "inbox/note/a.jsonl"), "--schema", "note"]
    arguments = ours if command == "gristmill run" else ["flows.extract"]
    started = [sys.executable, str(Path(__file__).with_name("slow.py")), "0.05", *arguments]
    settings = load_settings(data=data, schemas=data.parent / "schemas", settle_seconds=0.0)
    store = Pipeline(settings, FakeEngine())
    # A file, since nobody reads a pipe before the end, and a full one would hold the process up.
    told = data.parent / "stderr"
    with (
        told.open("w") as stderr,
        subprocess.Popen(started, env=environment, cwd=ROOT, start_new_session=True, stderr=stderr) as process,
    ):
        while process.poll() is None and not store.desk.rows([RecordState.LEASED]):
            time.sleep(0.1)
        time.sleep(1.0)
        os.killpg(process.pid, number)
        assert process.wait(20) == status, told.read_text()
        if number is signal.SIGINT or command == "gristmill run":
            assert "what is finished is kept, the rest given back" in told.read_text()
    done = {row.record_id for row in store.desk.rows([RecordState.LEASED, RecordState.ACCEPTED])}
    assert 0 < len(done) < RECORDS
    assert len(store.desk.rows([RecordState.WAITING])) == RECORDS - len(done)

    engine = FakeEngine()
    again = Pipeline(settings, engine)
    again.run(again.begin("extract"))
    assert len(store.desk.rows([RecordState.ACCEPTED])) == RECORDS
    assert len(engine.requests) == RECORDS - len(done)
    assert not {request.record.id for request in engine.requests} & done
    again.close()
    store.close()
