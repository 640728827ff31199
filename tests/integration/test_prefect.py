"""The flows for real: a server, a process worker that starts elsewhere, the deployments, the embedded model."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import jsonlines
import pytest

ROOT = Path(__file__).parents[2]
START_SECONDS = 60


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, embedded: Path) -> dict[str, str]:
    """An environment with a data folder and a Prefect home of its own."""
    folder = tmp_path_factory.mktemp("prefect")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return os.environ | {
        "GRISTMILL_DATA": str(folder / "data"),
        "PREFECT_HOME": str(folder / "home"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # `prefect deploy` writes this into the pull step.
        "PWD": str(ROOT),
    }


@pytest.fixture(scope="module")
def server(environment: dict[str, str]) -> Iterator[str]:
    """A Prefect server on loopback; its API's address."""
    url = environment["PREFECT_API_URL"]
    port = url.split(":")[2].split("/")[0]
    log = Path(environment["PREFECT_HOME"]).parent / "server.log"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", port]
    with log.open("w") as out, subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process:
        for _ in range(START_SECONDS * 4):
            try:
                if httpx.get(f"{url}/health", timeout=1).is_success:
                    break
            except httpx.TransportError:
                time.sleep(0.25)
        else:
            process.terminate()
            pytest.fail(f"the server did not start:\n{log.read_text()}")
        yield url
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def worker(server: str, environment: dict[str, str]) -> Iterator[Path]:
    """The project deployed from the checkout, and a process worker that was started in `/`; the worker's log."""
    prefect(environment, "work-pool", "create", "gristmill", "--type", "process")
    prefect(environment, "--no-prompt", "deploy", "--all")
    log = Path(environment["PREFECT_HOME"]).parent / "worker.log"
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "gristmill"]
    with log.open("w") as out, subprocess.Popen(command, env=environment, cwd="/", stdout=out, stderr=out) as process:
        yield log
        process.terminate()
        process.wait(30)


def prefect(environment: dict[str, str], *arguments: str) -> str:
    """Run a Prefect command in the checkout; its output."""
    command = [sys.executable, "-m", "prefect", *arguments]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def latest_report(environment: dict[str, str]) -> dict:  # type: ignore[type-arg]
    """The last run's report."""
    reports = Path(environment["GRISTMILL_DATA"]) / "reports"
    return json.loads(max(reports.glob("*.json")).read_text())


def fill_inbox(environment: dict[str, str]) -> None:
    """Drop the sample tickets and a file that lacks everything."""
    inbox = Path(environment["GRISTMILL_DATA"]) / "inbox" / "ticket"
    inbox.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "data" / "samples" / "ticket").glob("*.jsonl")):
        shutil.copy(path, inbox)
    (inbox / "broken.jsonl").write_text('{"id": "b1"}\nnot json\n')


def artifacts(url: str) -> dict[str, str]:
    """The latest artifacts by key."""
    found = httpx.post(f"{url}/artifacts/latest/filter", json={}).json()
    return {artifact["key"]: artifact["data"] for artifact in found}


def logged(url: str) -> list[str]:
    """Everything that flow runs logged to the server."""
    time.sleep(3)  # log lines are sent in batches
    return [line["message"] for line in httpx.post(f"{url}/logs/filter", json={"limit": 200}).json()]


def test_nightly(server: str, worker: Path, environment: dict[str, str]) -> None:
    """The nightly deployment does the sample tickets: at least 90% accepted, the model loaded once for all files."""
    fill_inbox(environment)
    output = prefect(environment, "deployment", "run", "extract/nightly", "--watch", "--watch-timeout", "300")
    assert "Completed" in output
    report = latest_report(environment)
    samples = report["records"] - 2
    assert samples >= 60
    assert report["states"]["accepted"] / samples >= 0.9
    assert report["states"]["dead"] == 2
    assert set(report["schemas"]["ticket"]["exact_match"]) == {
        "customer",
        "product",
        "category",
        "priority",
        "order_id",
        "refund_requested",
        "sentiment",
        "quantity",
    }
    assert report["schemas"]["ticket"]["gold_records"] >= samples / 2
    data = Path(environment["GRISTMILL_DATA"])
    accepted = sum(1 for path in (data / "outbox").rglob("*.jsonl") for _ in jsonlines.open(path))
    assert accepted == report["states"]["accepted"]
    assert len((data / "dead" / "ticket" / "broken.jsonl").read_text().splitlines()) == 2
    assert list((data / "inbox" / "ticket").iterdir()) == []
    page = (data / "reports" / f"{report['run_id']}.html").read_text()
    assert len(page) < 500_000
    assert "HashError" not in worker.read_text()
    assert len([m for m in logged(server) if re.match("model SmolLM2-135M-Instruct loaded on", m)]) == 1
    assert [m for m in logged(server) if m.startswith("messages.jsonl: 44 lines for schema ticket")]
    kept = artifacts(server)
    assert f"{accepted} of {samples + 2} records accepted" in kept["extract-report"]
    assert json.loads(kept["extract-counts"])[0]["accepted"] == accepted
    assert httpx.post(f"{server}/task_runs/count", json={}).json() < 60


def test_hourly(server: str, worker: Path, environment: dict[str, str]) -> None:
    """The hourly deployment tries what was queued under the next preset of the policy, in a new process."""
    before = latest_report(environment)
    prefect(environment, "deployment", "run", "retry/hourly", "--watch", "--watch-timeout", "300")
    report = latest_report(environment)
    assert report["kind"] == "retry"
    assert report["attempts"] == before["states"]["queued"] > 0
    assert "retry-report" in artifacts(server)


def test_without_a_server(environment: dict[str, str]) -> None:
    """`python -m flows.extract` needs no server of one's own, and says that what was done is not done again."""
    alone = {key: value for key, value in environment.items() if key != "PREFECT_API_URL"}
    fill_inbox(environment)
    command = [sys.executable, "-m", "flows.extract"]
    done = subprocess.run(command, env=alone, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert "Nothing was due: no new records, nothing was done." in text
    assert "already done before, not done again: broken.jsonl, forwarded.jsonl, messages.jsonl" in text
    assert latest_report(environment)["attempts"] == 0


def test_a_set_up_error_is_one_line(server: str, environment: dict[str, str]) -> None:
    """A model that does not exist ends the flow with exit status 2 and a line that says what to do."""
    command = [sys.executable, "-m", "flows.extract", "--model", "/nowhere"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("python -m flows.extract: ")]
    assert line.startswith("python -m flows.extract: no model directory '/nowhere': models are read from local")


def test_deployments_as_documented(server: str, worker: Path) -> None:
    """The deployments have their names, schedules and limits, and their parameters are described."""
    found = {d["name"]: d for d in httpx.post(f"{server}/deployments/filter", json={}).json()}
    assert set(found) == {"nightly", "on-arrival", "hourly", "weekly"}
    assert found["on-arrival"]["schedules"] == []
    assert found["nightly"]["version"] == "0.1.0"
    assert [s["schedule"]["cron"] for s in found["nightly"]["schedules"]] == ["0 2 * * *"]
    assert found["nightly"]["global_concurrency_limit"]["limit"] == 1
    properties = found["nightly"]["parameter_openapi_schema"]["properties"]
    assert all(properties[name]["description"] for name in ("schema", "preset", "model", "again"))
