"""Claim the next chunk, or what a dead run left behind."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings
from gristmill.store import Claim


@task(name="claim", cache_policy=NO_CACHE)
def claim(settings: Settings, run_id: str, ignore_due: bool = False) -> Claim:
    """Lease the next chunk of records."""
    return pipeline_for(settings).claim(run_id, ignore_due=ignore_due)


@task(name="recover", cache_policy=NO_CACHE)
def recover(settings: Settings, run_id: str) -> Claim:
    """Take over what dead runs had in hand."""
    return pipeline_for(settings).recover(run_id)
