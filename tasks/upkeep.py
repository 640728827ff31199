"""Look after the store: is it whole, and what of it is old."""

import time

from prefect import task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from gristmill import pruning
from gristmill.doctor import examine
from gristmill.pipeline import pipeline_for
from gristmill.settings import Settings


@task(name="doctor", cache_policy=NO_CACHE)
def doctor(settings: Settings) -> list[str]:
    """Everything that is broken; notes are in the artifact only."""
    findings = list(examine(pipeline_for(settings)))
    rows = [{"broken": f.broken, "what": f.what, "way out": f.way_out} for f in findings]
    create_table_artifact(rows, key="maintenance-doctor", description=f"{len(findings)} findings")
    return [finding.what for finding in findings if finding.broken]


@task(name="prune", cache_policy=NO_CACHE)
def prune(settings: Settings, remove: bool) -> str:
    """Remove what ended long ago, or only say what would be removed; a sentence on it."""
    pipeline = pipeline_for(settings)
    plan = pruning.plan(pipeline, time.time() - settings.keep_days * 86400)
    files = [{"file": f"{g.old.file.schema}/{g.old.file.output_name}", "records": g.old.records} for g in plan.files]
    what = f"{len(files)} files with {plan.records} records, {plan.bytes / 1e6:.1f} MB and {len(plan.runs)} runs"
    sentence = f"{what} ended more than {settings.keep_days:g} days ago"
    create_table_artifact(files, key="maintenance-prune", description=sentence)
    if remove:
        pruning.prune(pipeline, plan)
    return f"{sentence} and {'are' if remove else 'could be'} removed"
