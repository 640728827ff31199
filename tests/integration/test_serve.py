"""`make serve`: server, pool, deployments and worker by one command."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.store import RecordState
from gristmill.testing import FakeEngine
from tests.integration.place import ROOT, Place, bare_environment, free_port
from tests.unit.conftest import NOTE_SCHEMA


def test_serve(tmp_path: Path) -> None:
    """One command sets all up; Ctrl-C ends everything within seconds, and a run at work gives back and is not stuck."""
    port = str(free_port())
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "note.py").write_text(NOTE_SCHEMA)
    inbox = tmp_path / "data" / "inbox" / "note"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text("".join(f'{{"id": "r{i}", "text": "t"}}\n' for i in range(400)))
    environment = bare_environment() | {
        "GRISTMILL_DATA": str(tmp_path / "data"),
        "GRISTMILL_SCHEMAS": str(tmp_path / "schemas"),
        "GRISTMILL_SETTLE_SECONDS": "0",
        "GRISTMILL_SERVE_PORT": port,
        "PREFECT_HOME": str(tmp_path / "home"),
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
        "FAKE_SECONDS": "0.1",
    }
    api = f"http://127.0.0.1:{port}/api"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "flows._serve"]
    with log.open("w") as out, subprocess.Popen(command, env=environment, cwd=ROOT, stdout=out, stderr=out) as process:
        for _ in range(600):
            if "The UI is at" in log.read_text() or process.poll() is not None:
                break
            time.sleep(0.2)
        assert f"The UI is at http://127.0.0.1:{port};" in log.read_text()
        known = httpx.post(f"{api}/deployments/filter", json={}).json()
        assert {deployment["name"] for deployment in known} == {"nightly", "on-arrival", "hourly", "weekly"}
        schedules = [schedule["schedule"] for deployment in known for schedule in deployment["schedules"]]
        assert [schedule["timezone"] for schedule in schedules] == ["UTC"] * 3
        (automation,) = httpx.post(f"{api}/automations/filter", json={}).json()
        assert (automation["name"], automation["trigger"]["within"]) == ("gristmill-silent-runs", 120)
        (arrival,) = [deployment for deployment in known if deployment["name"] == "on-arrival"]
        asked = {"state": {"type": "SCHEDULED"}}
        run = httpx.post(f"{api}/deployments/{arrival['id']}/create_flow_run", json=asked).json()["id"]
        store = Pipeline(
            load_settings(data=tmp_path / "data", schemas=tmp_path / "schemas", settle_seconds=0.0), FakeEngine()
        )
        for _ in range(300):
            if store.desk.rows([RecordState.ACCEPTED]):
                break
            time.sleep(0.2)
        started = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 0
    assert not [pid for pid in started if psutil.pid_exists(pid)]
    assert "Finished in state Crashed" in log.read_text()
    assert run
    held = len(store.desk.rows([RecordState.LEASED]))
    assert held < 400
    assert len(store.desk.rows([RecordState.ACCEPTED])) > 0
    assert store.queue.recover("another", lease_seconds=100).records == held
    store.close()


def test_the_automation_is_there_once(place: Place) -> None:
    """On a server that has the automation, `make serve` makes no second one and leaves it as it is."""
    name = "gristmill-silent-runs"
    command = [sys.executable, "-c", "from flows._serve import see_to_automation; see_to_automation()"]
    subprocess.run(command, env=place.environment, cwd=ROOT, check=True, capture_output=True)
    found = httpx.post(f"{place.api}/automations/filter", json={}).json()
    assert [(automation["name"], automation["trigger"]["within"]) for automation in found] == [(name, 35)]


def test_a_time_zone_that_there_is_not() -> None:
    """Nothing is started with the name of a time zone that there is not."""
    environment = bare_environment() | {"GRISTMILL_TIMEZONE": "Europe/Berln"}
    command = [sys.executable, "-m", "flows._serve"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "make serve: GRISTMILL_TIMEZONE='Europe/Berln' is no time zone; give a name such as Europe/Berlin\n"
    )
