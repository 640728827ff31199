"""Chunk after chunk: claim, generate, check, route, until nothing is due."""

from gristmill.settings import Settings
from tasks.check import check
from tasks.claim import claim
from tasks.generate import generate
from tasks.route import route


def work_off(settings: Settings, run_id: str, *, ignore_due: bool = False) -> None:
    """Finish what dead runs left, and work through everything that this run may claim."""
    while (chunk := claim(settings, run_id, ignore_due=ignore_due)).records:
        generate(settings, run_id, chunk.lease)
        check(settings, chunk.lease)
        route(settings, chunk.lease)
