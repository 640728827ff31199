"""Chunk after chunk: claim, generate, check, route, until nothing is due; each with a log line and progress."""

import logging

from prefect.artifacts import create_progress_artifact, update_progress_artifact

from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings
from tasks.check import check
from tasks.claim import claim
from tasks.cluster import spread
from tasks.generate import generate
from tasks.route import route

log = logging.getLogger("gristmill.chunks")


def work_off(settings: Settings, run_id: str, *, ignore_due: bool = False) -> None:
    """Finish what dead runs left, and work through everything that this run may claim."""
    if settings.cluster:
        spread(settings, run_id, ignore_due=ignore_due)
        return
    pipeline = pipeline_for(settings)
    kind = pipeline.ledger.run(run_id).kind
    due = pipeline.due(run_id, ignore_due=ignore_due)
    shown = create_progress_artifact(0.0, key=f"{kind}-progress", description=f"0 of {due} records")
    done = 0
    while (chunk := claim(settings, run_id, ignore_due=ignore_due)).records:
        generate(settings, run_id, chunk.lease)
        checked = check(settings, chunk.lease)
        route(settings, chunk.lease)
        done += chunk.records
        # Others may have brought work in, or taken some away.
        due = max(due, done)
        text = f"{done} of {due} records; of the last {checked.judged}, {checked.accepted} accepted"
        log.info(text, extra={"action": "chunk_done"})
        update_progress_artifact(shown, 100.0 * done / due, description=text)
    update_progress_artifact(shown, 100.0, description=f"{done} records")
