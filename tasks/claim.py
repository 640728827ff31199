"""Lease what a run does next."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings
from gristmill.store import Claim


@task(name="claim", cache_policy=NO_CACHE)
def claim(settings: Settings, run_id: str, ignore_due: bool = False) -> Claim:
    """Lease the next chunk of records, those that a dead run left among them; an empty one where nothing is left."""
    return pipeline_for(settings).next_chunk(run_id, ignore_due=ignore_due)
