"""A process that works off an inbox with a fake engine and may be killed at any moment."""

import os
import signal
from pathlib import Path

from gristmill import policy
from gristmill.engine import Request
from gristmill.faults import FaultCode
from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.testing import FakeEngine, first_example

BAD = '{"title": "soup", "stars": 9}'


def answer(request: Request) -> str:
    """Rightly at once, under the second preset, or never: the record's number decides."""
    number = int(request.record.id.removeprefix("r"))
    never, later = number % 20 == 7, number % 10 == 3 and request.preset.name == "extract"
    return BAD if never or later else first_example(request)


def work(data: Path, schemas: Path, url: str, log: Path, chunk: int) -> None:
    """Run until every record is accepted or dead; `log` gets a line for each record that enters the model."""
    # Killed at random a hundred times, a record would be given up for what is not its fault.
    policy.LIMITS[FaultCode.INTERRUPTED] = 1000
    settings = load_settings(
        data=data, schemas=schemas, database_url=url, settle_seconds=0.0, chunk_records=chunk, max_attempts=20
    )
    entered = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def logged(request: Request) -> str:
        os.write(entered, f"{request.record.id}\n".encode())
        return answer(request)

    pipeline = Pipeline(settings, FakeEngine(logged))
    _run(pipeline, "extract")
    while pipeline.ledger.unfinished() or list(pipeline.inbox.rglob("*.jsonl")):
        _run(pipeline, "extract")
        _run(pipeline, "retry")


def poisoned(data: Path, schemas: Path, url: str) -> None:
    """One run of each kind with an engine in which the record `poison` kills the process."""
    settings = load_settings(data=data, schemas=schemas, database_url=url, settle_seconds=0.0)

    def deadly(request: Request) -> str:
        if request.record.id == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        return first_example(request)

    pipeline = Pipeline(settings, FakeEngine(deadly))
    _run(pipeline, "extract")
    _run(pipeline, "retry")


def _run(pipeline: Pipeline, kind: str) -> None:
    run_id = pipeline.begin(kind)
    if kind == "extract":
        pipeline.take_in(run_id)
    pipeline.run(run_id, ignore_due=True)
