"""Take in the files of the inbox."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings


@task(name="take in", cache_policy=NO_CACHE)
def take_in(settings: Settings, run_id: str, schema: str | None, again: bool) -> int:
    """Take in what lies in the inbox; the number of files."""
    return len(pipeline_for(settings).take_in(run_id, schema=schema, again=again))
