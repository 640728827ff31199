"""A run spread over a local Dask cluster, with a fake engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.testing import FakeEngine
from tests.unit.conftest import NOTE_SCHEMA

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_two_processes_of_a_cluster(tmp_path: Path) -> None:
    """Two processes work off one run, each record is done once, and the run ends as any other."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "note.py").write_text(NOTE_SCHEMA)
    inbox = tmp_path / "data" / "inbox" / "note"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text("".join(json.dumps({"id": f"r{i}", "text": "t"}) + "\n" for i in range(400)))
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"} | {
        "GRISTMILL_DATA": str(tmp_path / "data"),
        "GRISTMILL_SCHEMAS": str(tmp_path / "schemas"),
        "GRISTMILL_SETTLE_SECONDS": "0",
        "GRISTMILL_CHUNK_RECORDS": "20",
        "GRISTMILL_CLUSTER": "local:2",
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PYTHONPATH": str(ROOT / "tests" / "integration" / "fake_site"),
        "FAKE_SECONDS": "0.02",
    }
    command = [sys.executable, "-m", "flows.extract"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "400 of 400 records accepted" in done.stdout + done.stderr
    settings = load_settings(data=tmp_path / "data", schemas=tmp_path / "schemas")
    store = Pipeline(settings, FakeEngine())
    with store._database.connect() as db:
        assert db.exec_driver_sql("SELECT count(*), max(number) FROM attempts").one() == (400, 1)
    store.close()
