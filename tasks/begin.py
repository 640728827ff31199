"""Open a run."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings


@task(name="begin", cache_policy=NO_CACHE)
def begin(settings: Settings, kind: str) -> str:
    """Open a run of this kind after seeing that it could work; its id."""
    return pipeline_for(settings).begin(kind)
