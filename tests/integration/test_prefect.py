"""The deployments for real: a server, a process worker that starts elsewhere, the embedded model; what they leave."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonlines
import pytest

from gristmill.pipeline import Pipeline
from gristmill.settings import Settings, load_settings
from gristmill.store import RecordState
from tests.integration.place import ROOT, TIMEZONE, Place, bare_environment

SAMPLES = ROOT / "data" / "samples" / "ticket"
FIELDS = {"customer", "product", "category", "priority", "order_id", "refund_requested", "sentiment", "quantity"}


def latest_report(data: Path) -> dict[str, Any]:
    """The last run's report."""
    return dict(json.loads(max((data / "reports").glob("*.json")).read_text()))


def test_nightly(place: Place, embedded: Path) -> None:
    """The nightly deployment does sample tickets with the embedded model, which it loads once for all files."""
    place.fresh(schemas=str(ROOT / "schemas"))
    inbox = place.data / "inbox" / "ticket"
    inbox.mkdir()
    lines = (SAMPLES / "messages.jsonl").read_text().splitlines(keepends=True)
    (inbox / "one.jsonl").write_text("".join(lines[:6]))
    (inbox / "two.jsonl").write_text("".join(lines[6:10]))
    (inbox / "broken.jsonl").write_text('{"id": "b1"}\nnot json\n')
    output = place.prefect("deployment", "run", "extract/nightly", "--watch", "--watch-timeout", "300")
    assert "Completed" in output
    run = str(re.findall(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", output)[0])
    report = latest_report(place.data)
    assert report["records"] == 12
    assert report["states"]["accepted"] >= 9
    assert report["states"]["dead"] == 2
    assert set(report["schemas"]["ticket"]["exact_match"]) == FIELDS
    assert report["schemas"]["ticket"]["gold_records"] >= 5
    accepted = sum(1 for path in (place.data / "outbox").rglob("*.jsonl") for _ in jsonlines.open(path))
    assert accepted == report["states"]["accepted"]
    assert len((place.data / "dead" / "ticket" / "broken.jsonl").read_text().splitlines()) == 2
    assert list(inbox.iterdir()) == []
    assert len((place.data / "reports" / f"{report['run_id']}.html").read_text()) < 500_000
    assert "HashError" not in (place.folder / "worker.log").read_text()
    logged = place.logs_to(run, "With dead records")
    assert len([m for m in logged if m.startswith("model SmolLM2-135M-Instruct loaded on")]) == 1
    assert [m for m in logged if m.startswith("one.jsonl: 6 lines for schema ticket")]
    kept = place.artifacts()
    assert f"{accepted} of 12 records accepted" in kept["extract-report"]["data"]
    assert json.loads(kept["extract-counts"]["data"])[0]["accepted"] == accepted


@pytest.mark.slow
def test_the_sample_tickets(embedded: Path, tmp_path: Path) -> None:
    """Of all the sample tickets, the embedded model's answers to at least 90% are accepted."""
    settings: Settings = load_settings(data=tmp_path, schemas=ROOT / "schemas", settle_seconds=0.0)
    pipeline = Pipeline(settings)
    shutil.copytree(SAMPLES, pipeline.inbox / "ticket")
    run_id = pipeline.begin("extract")
    pipeline.take_in(run_id)
    report = pipeline.run(run_id)
    assert report.records >= 60
    assert report.states["accepted"] / report.records >= 0.9
    assert report.schemas["ticket"].gold_records >= report.records / 2
    assert set(report.schemas["ticket"].exact_match) == FIELDS


def test_hourly(place: Place) -> None:
    """The hourly deployment tries what was queued under the next preset of the policy, in a new process."""
    place.fresh()
    place.drop("a", ["dead1", "x"])
    place.work_here()
    before = place.store.desk.rows([RecordState.QUEUED])
    assert [(row.record_id, row.attempts) for row in before] == [("dead1", 1)]
    (seen,) = place.ended(place.run("retry/hourly"))
    assert seen["state_name"] == "With queued records"
    (after,) = place.store.desk.rows([RecordState.QUEUED])
    assert after.attempts == 2
    assert after.preset != before[0].preset
    assert latest_report(place.data)["kind"] == "retry"
    assert {"retry-report", "retry-counts"} <= place.artifacts().keys()


def test_without_a_server(tmp_path: Path, place: Place) -> None:
    """`python -m flows.extract` needs no server of one's own, and says that what was done is not done again."""
    place.fresh()
    place.drop("a", ["x", "y"])
    place.work_here()
    place.drop("a", ["x", "y"])
    alone = bare_environment() | {
        "GRISTMILL_DATA": str(place.data),
        "GRISTMILL_DATABASE_URL": place.url,
        "GRISTMILL_SCHEMAS": str(place.folder / "schemas"),
        "GRISTMILL_SETTLE_SECONDS": "0",
        "PREFECT_HOME": str(tmp_path),
        "FAKE_SECONDS": "0",
    }
    command = [sys.executable, "-m", "flows.extract"]
    done = subprocess.run(command, env=alone, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert "Nothing was due: no new records, nothing was done." in text
    assert "already done before, not done again: a.jsonl" in text
    assert latest_report(place.data)["attempts"] == 0


def test_a_set_up_error_is_one_line(place: Place) -> None:
    """A model that does not exist ends the flow with exit status 2 and a line that says what to do."""
    command = [sys.executable, "-m", "flows.extract", "--model", "/nowhere"]
    done = subprocess.run(command, env=place.environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("python -m flows.extract: ")]
    assert line.startswith("python -m flows.extract: no model directory '/nowhere': models are read from local")


def zones(place: Place) -> dict[str, list[str]]:
    """The time zones of each deployment's schedules."""
    return {name: [s["schedule"]["timezone"] for s in d["schedules"]] for name, d in place.deployments().items()}


def test_deployments_as_documented(place: Place) -> None:
    """The deployments have their names, schedules, limits and time zone, and their parameters are described."""
    found = place.deployments()
    assert zones(place) == {"nightly": [TIMEZONE], "on-arrival": [], "hourly": [TIMEZONE], "weekly": [TIMEZONE]}
    assert found["nightly"]["version"] == "0.1.0"
    assert [s["schedule"]["cron"] for s in found["nightly"]["schedules"]] == ["0 2 * * *"]
    assert found["nightly"]["global_concurrency_limit"]["limit"] == 1
    properties = found["nightly"]["parameter_openapi_schema"]["properties"]
    assert all(properties[name]["description"] for name in ("schema", "preset", "model", "again"))


def test_a_time_zone_that_there_is_not(place: Place) -> None:
    """A wrong name is told, and no deployment is touched."""
    before = {name: found["updated"] for name, found in place.deployments().items()}
    output = place.prefect("--no-prompt", "deploy", "--all", fails=True, GRISTMILL_TIMEZONE="Europe/Berln")
    assert 'Invalid timezone: "Europe/Berln"' in output
    assert {name: found["updated"] for name, found in place.deployments().items()} == before
