"""Chunk after chunk: claim, generate, check, route, until nothing is due."""

from gristmill.settings import Settings
from tasks.check import check
from tasks.claim import claim, recover
from tasks.generate import generate
from tasks.route import route


def work_off(settings: Settings, run_id: str, *, ignore_due: bool = False) -> None:
    """Finish what dead runs left, then work through everything that this run may claim."""
    chunk = recover(settings, run_id)
    while True:
        if chunk.records:
            generate(settings, run_id, chunk.lease)
            check(settings, chunk.lease)
            route(settings, chunk.lease)
        chunk = claim(settings, run_id, ignore_due=ignore_due)
        if not chunk.records:
            return
