"""Move the judged records of a chunk on."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings


@task(name="route", cache_policy=NO_CACHE)
def route(settings: Settings, lease: str) -> int:
    """Accept, queue or bury what was judged under a lease; the number of records."""
    return pipeline_for(settings).route(lease)
