"""Judge the candidates of a chunk."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import Checked, pipeline_for
from gristmill.settings import Settings


@task(name="check", cache_policy=NO_CACHE)
def check(settings: Settings, lease: str) -> Checked:
    """Judge what was generated under a lease."""
    return pipeline_for(settings).check(lease)
