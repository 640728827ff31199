"""Write outputs and the report of a run, and show it in Prefect."""

from dataclasses import dataclass

from prefect import task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from gristmill.pipeline import pipeline_for
from gristmill.report import as_markdown, as_text, headline, schema_rows
from gristmill.settings import Settings


@dataclass(frozen=True, slots=True)
class Told:
    """What is told of a run: a sentence, a summary for a log, and how many of its records are queued and dead."""

    headline: str
    summary: str
    queued: int
    dead: int


@task(name="report", cache_policy=NO_CACHE)
def report(settings: Settings, run_id: str) -> Told:
    """Report on the run."""
    pipeline = pipeline_for(settings)
    made = pipeline.report(run_id)
    markdown = as_markdown(made, pipeline.reports)
    create_markdown_artifact(markdown, key=f"{made.kind}-report", description=headline(made))
    create_table_artifact(schema_rows(made), key=f"{made.kind}-counts", description="records by schema and state")
    return Told(headline(made), as_text(made, pipeline.reports), made.states["queued"], made.states["dead"])
