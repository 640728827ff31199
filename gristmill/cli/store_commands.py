"""Commands about what is stored: results so far, outputs anew, whether all is well, and removing what is old."""

import json
import sys
import time
from difflib import get_close_matches
from typing import Annotated

import typer

from gristmill.cli.common import AsJson, Data, existing
from gristmill.errors import SetupError
from gristmill.outlet import accepted_line, output_paths
from gristmill.pipeline import Pipeline
from gristmill.settings import load_settings
from gristmill.store import FileRow

Name = Annotated[str, typer.Argument(help="The file's name in the outbox, without .jsonl.")]
OfSchema = Annotated[str, typer.Option("--schema", help="Name of the schema.")]


def results(name: Name, schema: OfSchema, data: Data = None) -> None:
    """Print the accepted lines of a file as they are now, also while a run goes on."""
    pipeline = existing(load_settings(data=data))
    file = _file(pipeline, name, schema)
    if file.pruned:
        accepted, _, _ = output_paths(file, pipeline.outbox, pipeline.dead, compress=pipeline.settings.compress)
        raise SetupError(f"the rows of {schema}/{name} were pruned; its results stand in {accepted}")
    with pipeline.outputs.ends(file.id) as ends:
        for row in ends.accepted():
            sys.stdout.write(accepted_line(file, row) + "\n")
        sys.stdout.flush()
        counts = ", ".join(f"{count} {state}" for state, count in sorted(ends.states.items()))
    typer.echo(f"{file.lines} lines: {counts}", err=True)


def rewrite(name: Name, schema: OfSchema, data: Data = None) -> None:
    """Write a file's outbox and dead file anew from the database."""
    pipeline = existing(load_settings(data=data))
    file = _file(pipeline, name, schema)
    if file.pruned:
        raise SetupError(f"the rows of {schema}/{name} were pruned; there is nothing to write its outputs from")
    pipeline.rewrite(file)
    accepted, _, _ = output_paths(file, pipeline.outbox, pipeline.dead, compress=pipeline.settings.compress)
    typer.echo(f"written: {accepted}")


def doctor(data: Data = None, as_json: AsJson = False) -> None:
    """Say whether everything that must hold does: database, outputs, inbox, schemas, disk.

    Exit status: 0 nothing is broken, 1 something is.
    """
    from gristmill.doctor import examine

    findings = list(examine(existing(load_settings(data=data))))
    if as_json:
        shown = [{"broken": f.broken, "what": f.what, "way_out": f.way_out} for f in findings]
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=1))
    else:
        for finding in findings:
            typer.echo(f"{'BROKEN' if finding.broken else 'note'}: {finding.what}; {finding.way_out}")
        if not findings:
            typer.echo("all is well")
    raise typer.Exit(1 if any(finding.broken for finding in findings) else 0)


def prune(
    older_than: Annotated[
        float | None, typer.Option(min=0, help="Age in days; default: the setting GRISTMILL_KEEP_DAYS.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Remove it; without this, only say what would be removed.")
    ] = False,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Remove rows, archived input, dead files and reports of what ended long ago; the outbox stays."""
    from gristmill import pruning

    settings = load_settings(data=data, keep_days=older_than)
    pipeline = existing(settings)
    plan = pruning.plan(pipeline, time.time() - settings.keep_days * 86400)
    if as_json:
        shown = {
            "removed": yes,
            "older_than_days": settings.keep_days,
            "files": [f"{going.old.file.schema}/{going.old.file.output_name}" for going in plan.files],
            "records": plan.records,
            "paths": [str(path) for path in plan.paths],
            "bytes": plan.bytes,
            "runs": list(plan.runs),
        }
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=1))
    else:
        age = f"{settings.keep_days:g} days"
        typer.echo(f"ended more than {age} ago: {len(plan.files)} files with {plan.records} records")
        for going in plan.files:
            typer.echo(f"  {going.old.file.schema}/{going.old.file.output_name}: {going.old.records} records")
            for label, paths in (("archived", going.archived), ("dead", going.dead)):
                for path in paths:
                    typer.echo(f"    {label:<9} {path}")
        for path in plan.reports:
            typer.echo(f"  report {path}")
        typer.echo(f"  and {len(plan.runs)} runs in the database; {plan.bytes / 1e6:.1f} MB on disk beside it")
    if yes:
        gone = pruning.prune(pipeline, plan)
        if gone < len(plan.files):
            typer.echo(f"{len(plan.files) - gone} files stay: a record of theirs was put in again", err=True)
        typer.echo("removed; the database file keeps its size and uses the room again", err=True)
    else:
        typer.echo("nothing was removed; --yes removes it", err=True)


def _file(pipeline: Pipeline, name: str, schema: str) -> FileRow:
    name = name.removesuffix(".gz").removesuffix(".jsonl")
    known = [file for file in pipeline.ledger.files() if file.schema == schema]
    for file in known:
        if file.output_name == name:
            return file
    near = get_close_matches(name, [file.output_name for file in known], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "its results have the names that stand in the outbox"
    raise SetupError(f"no file {name!r} of schema {schema!r} was taken in; {hint}")
