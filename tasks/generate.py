"""Make one attempt for each record of a chunk."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings


@task(name="generate", cache_policy=NO_CACHE)
def generate(settings: Settings, run_id: str, lease: str) -> int:
    """Generate under a lease; the number of attempts."""
    return pipeline_for(settings).generate(run_id, lease)
