"""A Prefect server with the project deployed, a worker that starts elsewhere, and data folders for runs."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from gristmill.engine import Request
from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.testing import FakeEngine, first_example
from tests.postgres import Server
from tests.unit.conftest import NOTE_SCHEMA

ROOT = Path(__file__).parents[2]
DONE = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}
TIMEZONE = "Europe/Berlin"


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bare_environment() -> dict[str, str]:
    """This process's environment without its settings and its Prefect server, for processes that may have a fake engine
    (FAKE_SECONDS) and import the project from here."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "GRISTMILL_CACHE" or not name.startswith(("GRISTMILL_", "PREFECT_API_"))
    }
    return kept | {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # A model's threads that wait for each other take many times as long where something else is at work.
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT / "tests" / "integration" / "fake_site"), str(ROOT))),
        # `prefect deploy` writes this into the pull step.
        "PWD": str(ROOT),
    }


class Place:
    """A Prefect server with a worker, and a data folder, on PostgreSQL where there is one."""

    def __init__(self, folder: Path, database: Server | None) -> None:
        self.database = database
        self.folder = folder
        port = free_port()
        self.api = f"http://127.0.0.1:{port}/api"
        self.environment = bare_environment() | {
            "GRISTMILL_SETTLE_SECONDS": "0",
            "GRISTMILL_TIMEZONE": TIMEZONE,
            "PREFECT_HOME": str(folder / "home"),
            "PREFECT_API_URL": self.api,
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_RUNNER_POLL_FREQUENCY": "1",
            "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "2",
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "schemas").mkdir()
        (folder / "schemas" / "note.py").write_text(NOTE_SCHEMA)
        self.start("server", "start", "--host", "127.0.0.1", "--port", str(port))
        self.wait(self._answers)
        # The first worker makes the pool.
        self.worker = self.start_worker()
        self.wait(lambda: httpx.get(f"{self.api}/work_pools/gristmill").is_success)
        self.prefect("--no-prompt", "deploy", "--all")
        # As it stands there, but less patient.
        (automation,) = yaml.safe_load((ROOT / "automations.yaml").read_text())["automations"]
        automation["trigger"]["within"] = 35
        made = httpx.post(f"{self.api}/automations/", json=automation)
        assert made.is_success, made.text
        self.fresh()

    def close(self) -> None:
        """End everything that was started here."""
        for process in reversed(self.processes):
            if process.poll() is None:
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
                process.kill()
                process.wait()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.api}/health", timeout=1).is_success
        except httpx.TransportError:
            return False

    def fresh(self, **settings: str) -> None:
        """A new data folder and database; the settings go to the runs by the Prefect variable."""
        name = f"data{len(list(self.folder.glob('data*')))}"
        self.data = self.folder / name
        self.url = self.database.url() if self.database else ""
        (self.data / "inbox" / "note").mkdir(parents=True)
        given = {"data": str(self.data), "schemas": str(self.folder / "schemas"), "database_url": self.url}
        self.use(given | settings)

    def use(self, given: dict[str, str]) -> None:
        """Have runs use these settings, as `prefect variable set gristmill` does, and look into their database."""
        self.given, self.data = given, Path(given["data"])
        address = f"{self.api}/variables/name/gristmill"
        if not httpx.patch(address, json={"value": given}, timeout=30).is_success:
            made = httpx.post(f"{self.api}/variables/", json={"name": "gristmill", "value": given}, timeout=30)
            assert made.is_success, made.text
        self.store = Pipeline(load_settings(given, settle_seconds=0.0), FakeEngine(_answer))

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

    def start_worker(self) -> subprocess.Popen[bytes]:
        """One more worker, which does one run at a time."""
        return self.start("worker", "start", "--pool", "gristmill", "--type", "process", "--limit", "1")

    def prefect(self, *arguments: str, fails: bool = False, **variables: str) -> str:
        """A Prefect command; its output."""
        command = [sys.executable, "-m", "prefect", *arguments]
        environment = self.environment | variables
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) == fails, done.stdout + done.stderr
        return done.stdout

    def deployments(self) -> dict[str, dict[str, Any]]:
        """All deployments by name."""
        return {d["name"]: d for d in httpx.post(f"{self.api}/deployments/filter", json={}).json()}

    def run(self, deployment: str, cost: float = 0.0, **parameters: Any) -> str:
        """Ask for a run of a deployment with the fake engine; its id."""
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
        return dict(httpx.get(f"{self.api}/flow_runs/{run}", timeout=30).json())

    def wait(self, what: Callable[[], Any], seconds: float = 120) -> Any:
        """Wait until something is true; what it was."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if found := what():
                return found
            time.sleep(0.2)
        said = "\n".join(log.read_text()[-3000:] for log in self.folder.glob("*.log"))
        return pytest.fail(f"waited in vain for {seconds} s:\n{said}")

    def ended(self, *runs: str) -> list[dict[str, Any]]:
        """Wait until runs have ended; what the server says of them."""
        self.wait(lambda: all(self.seen(run)["state_type"] in DONE for run in runs))
        return [self.seen(run) for run in runs]

    def drop(self, name: str, ids: list[str]) -> None:
        """Put a file of these records into the inbox."""
        lines = "".join(json.dumps({"id": i, "text": f"secret text {i}"}) + "\n" for i in ids)
        (self.data / "inbox" / "note" / f"{name}.jsonl").write_text(lines)

    def work_here(self) -> None:
        """An extract run in this process, with the fake engine."""
        run_id = self.store.begin("extract")
        self.store.take_in(run_id)
        self.store.run(run_id)

    def states(self) -> dict[str, int]:
        """All records by state."""
        counts: dict[str, int] = {}
        for file in self.store.ledger.files():
            for state, count in self.store.figures.states_of_file(file.id).items():
                counts[state.value] = counts.get(state.value, 0) + count
        return counts

    def artifacts(self) -> dict[str, dict[str, Any]]:
        """The latest artifacts by key."""
        found = httpx.post(f"{self.api}/artifacts/latest/filter", json={}).json()
        return {artifact["key"]: artifact for artifact in found}

    def logs(self, run: str) -> list[str]:
        """What a run logged to the server by now; lines are sent in batches."""
        query = {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200, "sort": "TIMESTAMP_ASC"}
        return [line["message"] for line in httpx.post(f"{self.api}/logs/filter", json=query).json()]

    def logs_to(self, run: str, last: str) -> list[str]:
        """What a run logged, once a line that holds `last` is there."""
        self.wait(lambda: any(last in line for line in self.logs(run)), 20)
        return self.logs(run)

    def generated(self) -> list[tuple[str, float]]:
        """Run and end (seconds since 1970) of each attempt that was committed, in the order of their ends."""
        with self.store._database.connect() as db:
            query = "SELECT run_id, ended_at FROM attempts WHERE ended_at IS NOT NULL ORDER BY ended_at"
            return [(str(run), float(at)) for run, at in db.exec_driver_sql(query).all()]


def _answer(request: Request) -> str:
    """As `fake_site` answers."""
    return "{}" if request.record.id.startswith("dead") else first_example(request)


def run_processes(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes in which a worker runs flows."""
    children = psutil.Process(worker.pid).children(recursive=True)
    return [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
