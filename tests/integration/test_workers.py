"""Flow runs on a real server by real workers, with a fake engine: what they say of themselves, and how they share."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.store import RecordState
from gristmill.testing import FakeEngine
from tests.postgres import Server
from tests.unit.conftest import NOTE_SCHEMA

ROOT = Path(__file__).parents[2]
DONE = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Place:
    """A Prefect server with workers, and a data folder on PostgreSQL."""

    def __init__(self, folder: Path, database: Server) -> None:
        self.database = database
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.api = f"http://127.0.0.1:{port}/api"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("GRISTMILL_")} | {
            "GRISTMILL_SETTLE_SECONDS": "0",
            "PREFECT_HOME": str(folder / "home"),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_RUNNER_POLL_FREQUENCY": "1",
            "PYTHONPATH": str(ROOT / "tests" / "integration" / "fake_site"),
            "PWD": str(ROOT),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "schemas").mkdir()
        (folder / "schemas" / "note.py").write_text(NOTE_SCHEMA)
        self.start("server", "start", "--host", "127.0.0.1", "--port", str(port))
        for _ in range(240):
            try:
                if httpx.get(f"{self.api}/health", timeout=1).is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.25)
        self.prefect("work-pool", "create", "gristmill", "--type", "process")
        self.prefect("--no-prompt", "deploy", "--all")
        # As it stands there, but less patient.
        automations = (ROOT / "automations.yaml").read_text()
        (folder / "automations.yaml").write_text(automations.replace("within: 120", "within: 35"))
        self.prefect("automation", "create", "--from-file", str(folder / "automations.yaml"))
        self.worker = self.start("worker", "start", "--pool", "gristmill")
        self.fresh()

    def fresh(self, **settings: str) -> None:
        """A new data folder and database; the settings go to the runs by the Prefect variable."""
        name = f"data{len(list(self.folder.glob('data*')))}"
        self.data = self.folder / name
        self.url = self.database.url()
        (self.data / "inbox" / "note").mkdir(parents=True)
        given = {"data": str(self.data), "schemas": str(self.folder / "schemas"), "database_url": self.url} | settings
        self.prefect("variable", "set", "gristmill", json.dumps(given), "--overwrite")
        self.store = Pipeline(load_settings(given, settle_seconds=0.0), FakeEngine())

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """A Prefect command that goes on."""
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "prefect", *arguments],
                env=self.environment,
                cwd=ROOT if arguments[0] == "server" else "/",
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def prefect(self, *arguments: str) -> str:
        """A Prefect command; its output."""
        command = [sys.executable, "-m", "prefect", *arguments]
        environment = {key: value for key, value in self.environment.items() if key != "PYTHONPATH"}
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, deployment: str, cost: float = 0.0, **parameters: Any) -> str:
        """Ask for a run of a deployment; its id."""
        flow, name = deployment.split("/")
        found = httpx.get(f"{self.api}/deployments/name/{flow}/{name}").json()
        job = {"env": found["job_variables"]["env"] | {"FAKE_SECONDS": str(cost)}}
        asked = {"parameters": parameters, "job_variables": job, "state": {"type": "SCHEDULED"}}
        address = f"{self.api}/deployments/{found['id']}/create_flow_run"
        # Prefect's own SQLite is busy now and then.
        answer = self.wait(lambda: (got := httpx.post(address, json=asked, timeout=30)).is_success and got)
        return str(answer.json()["id"])

    def seen(self, run: str) -> dict[str, Any]:
        """What the server says of a run."""
        return dict(httpx.get(f"{self.api}/flow_runs/{run}").json())

    def wait(self, what: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait until something is true; what it was."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := what():
                return found
            time.sleep(0.2)
        pytest.fail(f"waited in vain for {seconds} s:\n{(self.folder / 'worker.log').read_text()[-3000:]}")

    def ended(self, *runs: str) -> list[dict[str, Any]]:
        """Wait until runs have ended; what the server says of them."""
        self.wait(lambda: all(self.seen(run)["state_type"] in DONE for run in runs))
        return [self.seen(run) for run in runs]

    def drop(self, name: str, ids: list[str]) -> None:
        """Put a file of these records into the inbox."""
        lines = "".join(json.dumps({"id": i, "text": f"secret text {i}"}) + "\n" for i in ids)
        (self.data / "inbox" / "note" / f"{name}.jsonl").write_text(lines)

    def states(self) -> dict[str, int]:
        """All records by state."""
        counts: dict[str, int] = {}
        for file in self.store.ledger.files():
            for state, count in self.store.figures.states_of_file(file.id).items():
                counts[state.value] = counts.get(state.value, 0) + count
        return counts

    def logs(self, run: str) -> list[str]:
        """What a run logged to the server."""
        query = {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200, "sort": "TIMESTAMP_ASC"}
        return [line["message"] for line in httpx.post(f"{self.api}/logs/filter", json=query).json()]

    def run_processes(self) -> list[psutil.Process]:
        """The processes in which flows run."""
        workers = [p for p in self.processes[1:] if p.poll() is None]
        children = [c for w in workers for c in psutil.Process(w.pid).children(recursive=True)]
        return [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> Iterator[Place]:
    """One server for all tests here."""
    here = Place(tmp_path_factory.mktemp("place"), postgres)
    yield here
    for process in reversed(here.processes):
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
            process.wait()


def test_a_run_tells_the_truth(place: Place) -> None:
    """Dead and queued records are in the run's state, message, tags and artifacts; its texts are nowhere."""
    place.fresh(chunk_records="1000", max_attempts="1")
    place.drop("a", [*(f"r{i}" for i in range(9_990)), *(f"dead{i}" for i in range(10))])
    run = place.run("extract/on-arrival")
    (seen,) = place.ended(run)
    assert (seen["state_type"], seen["state_name"]) == ("COMPLETED", "With dead records")
    assert seen["state"]["message"] == "9990 of 10000 records accepted, 0 queued for another attempt, 10 dead."
    assert {"records-dead", "gristmill", "extract"} <= set(seen["tags"])
    found = httpx.post(f"{place.api}/artifacts/latest/filter", json={}).json()
    kept = {artifact["key"]: artifact for artifact in found}
    assert {"extract-report", "extract-counts", "extract-progress"} <= kept.keys()
    assert kept["extract-progress"]["data"] == 100.0
    count = {"flow_runs": {"id": {"any_": [run]}}}
    assert httpx.post(f"{place.api}/task_runs/count", json=count).json() < 60
    place.wait(lambda: any("With dead records" in line for line in place.logs(run)), 20)
    logged = place.logs(run)
    assert len([line for line in logged if " records; of the last 1000, " in line]) == 10
    assert any("GRISTMILL_CHUNK_RECORDS=1000 (Prefect variable)" in line for line in logged)
    said = "\n".join([*logged, *(str(artifact["data"]) for artifact in found)])
    assert "secret text" not in said
    assert f"postgresql://.../{place.url.rsplit('/', 1)[1]}" in said
    results = httpx.post(f"{place.api}/task_runs/filter", json=count | {"limit": 200}).text
    assert "secret text" not in results


def test_a_broken_run_is_failed(place: Place) -> None:
    """A run that can't begin is Failed with the sentence that says why."""
    (seen,) = place.ended(place.run("extract/on-arrival", model="/nowhere"))
    assert seen["state_type"] == "FAILED"
    assert "no model directory '/nowhere'" in seen["state"]["message"]


@pytest.mark.slow
def test_upkeep(place: Place) -> None:
    """The weekly run checks and prunes; where something is broken it fails with what it is."""
    place.fresh()
    place.drop("a", ["x"])
    place.ended(place.run("extract/on-arrival"))
    (seen,) = place.ended(place.run("maintenance/weekly", keep_days=0))
    assert seen["state"]["message"].startswith("1 files with 1 records")
    assert place.states() == {}
    place.drop("b", ["y"])
    place.ended(place.run("extract/on-arrival"))
    (place.data / "outbox" / "note" / "b.jsonl").unlink()
    (seen,) = place.ended(place.run("maintenance/weekly", keep_days=0))
    assert seen["state_type"] == "FAILED"
    assert "b.jsonl is missing; the database has 1 accepted records" in seen["state"]["message"]
    assert place.states() == {"accepted": 1}


def test_cancelled(place: Place) -> None:
    """A cancelled run stops, says so, and what it had in hand can be taken over at once."""
    place.fresh()
    place.drop("a", [f"r{i}" for i in range(400)])
    run = place.run("extract/on-arrival", cost=0.05)
    place.wait(lambda: place.states().get("leased"))
    time.sleep(2)
    place.prefect("flow-run", "cancel", run)
    place.wait(lambda: place.seen(run)["state_type"] == "CANCELLED", 20)
    states = place.states()
    assert sum(states.values()) == 400
    assert states["waiting"] > 200
    # Another machine would have to wait for the lease of a run that did not let go of it.
    assert place.store.queue.recover("another", lease_seconds=100).records == states.get("leased", 0)


@pytest.mark.slow
def test_a_killed_run_does_not_block_the_next(place: Place) -> None:
    """After SIGKILL of a nightly run's process and of its worker, the next nightly run starts and finishes."""
    place.fresh()
    place.drop("a", [f"r{i}" for i in range(300)])
    first = place.run("extract/nightly", cost=0.05)
    place.wait(lambda: place.states().get("leased"))
    processes = place.run_processes()
    place.worker.kill()
    place.worker.wait()
    for process in processes:
        process.send_signal(signal.SIGKILL)
    place.worker = place.start("worker", "start", "--pool", "gristmill")
    second = place.run("extract/nightly")
    assert place.wait(lambda: place.seen(first)["state_type"] in DONE)
    assert place.seen(first)["state"]["message"].startswith("The process of this run fell silent")
    (seen,) = place.ended(second)
    assert seen["state_type"] == "COMPLETED"
    states = place.states()
    assert states["accepted"] + states.get("queued", 0) == 300


@pytest.mark.slow
def test_four_workers(place: Place) -> None:
    """Four runs at once have three and a half times the rate of one, never do a record twice, and survive a loss."""
    cost, records = 0.04, 300

    def rate() -> float:
        """Records a second while all runs were at work: they do not begin in the same second."""
        with place.store._database.connect() as db:
            spans = db.exec_driver_sql("SELECT min(started_at), max(ended_at) FROM attempts GROUP BY run_id").all()
            began, ended = max(span[0] for span in spans), min(span[1] for span in spans)
            within = f"SELECT count(*) FROM attempts WHERE ended_at BETWEEN {began} AND {ended}"
            return float(db.exec_driver_sql(within).scalar_one() / (ended - began))

    place.fresh(chunk_records="100")
    place.drop("a", [f"r{i}" for i in range(records)])
    place.ended(place.run("extract/on-arrival", cost=cost))
    alone = rate()

    place.fresh(chunk_records="100")
    workers = [place.start("worker", "start", "--pool", "gristmill") for _ in range(3)]
    runs = [place.run("extract/on-arrival", cost=cost, again=False) for _ in range(4)]
    place.drop("a", [f"r{i}" for i in range(records * 5)])
    place.ended(*runs)
    assert place.states() == {"accepted": records * 5}
    with place.store._database.connect() as db:
        owners = db.exec_driver_sql("SELECT count(DISTINCT run_id), count(*) FROM attempts").one()
    assert owners == (4, records * 5)
    print(f"one worker {alone:.1f} records/s, four {rate():.1f}")
    assert rate() > 3.5 * alone

    place.fresh(chunk_records="20")
    place.drop("a", [f"r{i}" for i in range(records)])
    runs = [place.run("extract/on-arrival", cost=cost) for _ in range(4)]
    place.wait(lambda: place.states().get("accepted", 0) > 50)
    victims = place.run_processes()
    victims[-1].kill()
    place.ended(*runs)
    states = place.states()
    assert states["accepted"] + states["queued"] == records
    assert states["queued"] <= 8
    place.store.run(place.store.begin("retry"), ignore_due=True)
    assert place.states() == {"accepted": records}
    assert json.loads((place.data / "outbox" / "note" / "a.done").read_text())["accepted"] == records
    for worker in workers:
        worker.terminate()
        worker.wait(60)


@pytest.mark.slow
def test_serve(tmp_path: Path) -> None:
    """One command sets all up; Ctrl-C ends everything within seconds, and a run at work gives back and is not stuck."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "note.py").write_text(NOTE_SCHEMA)
    inbox = tmp_path / "data" / "inbox" / "note"
    inbox.mkdir(parents=True)
    (inbox / "a.jsonl").write_text("".join(f'{{"id": "r{i}", "text": "t"}}\n' for i in range(400)))
    environment = {key: value for key, value in os.environ.items() if key != "PREFECT_API_URL"} | {
        "GRISTMILL_DATA": str(tmp_path / "data"),
        "GRISTMILL_SCHEMAS": str(tmp_path / "schemas"),
        "GRISTMILL_SETTLE_SECONDS": "0",
        "GRISTMILL_SERVE_PORT": port,
        "PREFECT_HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT / "tests" / "integration" / "fake_site"),
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
        (arrival,) = [deployment for deployment in known if deployment["name"] == "on-arrival"]
        asked = {"state": {"type": "SCHEDULED"}}
        run = httpx.post(f"{api}/deployments/{arrival['id']}/create_flow_run", json=asked).json()["id"]
        store = Pipeline(
            load_settings(data=tmp_path / "data", schemas=tmp_path / "schemas", settle_seconds=0.0), FakeEngine()
        )
        for _ in range(300):
            if store.desk.rows([RecordState.LEASED]):
                break
            time.sleep(0.2)
        time.sleep(2)
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
