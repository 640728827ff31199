"""`gristmill watch` and `gristmill config`."""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from gristmill.cli.common import AsJson, Data
from gristmill.models.embedded import cache_folder
from gristmill.report import Report, headline
from gristmill.settings import OTHERS, PREFIX, SERVE_PORT, Sourced, load_settings, sources

_LINE_EVERY_SECONDS = 10.0


def watch(
    schema: Annotated[str | None, typer.Option(help="Schema of files that lie directly in the inbox.")] = None,
    preset: Annotated[str | None, typer.Option(help="Decoding preset of first attempts.")] = None,
    model: Annotated[str | None, typer.Option(help="Model directory, or embedded.")] = None,
    data: Data = None,
    schemas: Annotated[Path | None, typer.Option(help="Schemas folder.")] = None,
) -> None:
    """Do what is dropped into the inbox within seconds, with the model kept loaded, until Ctrl-C or SIGTERM.

    What comes while a larger batch is at work is put between two of its chunks. Failures are tried again by the retry
    policy as soon as they are due and nothing else is at work.
    """
    from gristmill.pipeline import Pipeline
    from gristmill.watching import Watcher

    logging.getLogger("gristmill").setLevel(logging.WARNING)
    settings = load_settings(preset=preset, model=model, data=data, schemas=schemas)
    pipeline = Pipeline(settings)
    # A model that is not there is said now and not when the first file comes.
    pipeline.check_model()
    typer.echo(f"watching {pipeline.inbox}; Ctrl-C ends it")
    Watcher(pipeline, schema, _say, _progress()).run()


def config(data: Data = None, as_json: AsJson = False) -> None:
    """Print every setting with its value and where it comes from: option, environment, .env or default."""
    rows = sources(load_settings(data=data))
    elsewhere = {"CACHE": str(cache_folder()), "SERVE_PORT": os.environ.get("GRISTMILL_SERVE_PORT", SERVE_PORT)}
    for name, about in OTHERS.items():
        own = os.environ.get(f"{PREFIX}{name}")
        rows.append(Sourced(f"{PREFIX}{name}", elsewhere[name], "environment" if own else "default", about))
    if as_json:
        shown = [{"variable": r.variable, "value": r.value, "source": r.source} for r in rows]
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=1))
        return
    for row in rows:
        typer.echo(f"{row.variable:<26} {row.value or '(empty)':<24} {row.source:<12} {row.description}")


def _progress() -> Callable[[int, int], None]:
    """Says how far a batch is, in a line now and then."""
    said = time.monotonic()
    before = 0

    def tell(done: int, due: int) -> None:
        nonlocal said, before
        if done < before:
            # Another batch: one that is over before a line is due has its report for one.
            said = time.monotonic()
        before = done
        if time.monotonic() - said >= _LINE_EVERY_SECONDS:
            said = time.monotonic()
            typer.echo(f"{time.strftime('%H:%M:%S')} {done} of {due} records")

    return tell


def _say(report: Report) -> None:
    typer.echo(f"{time.strftime('%H:%M:%S')} {report.kind}: {headline(report)}")
    for note in report.notes:
        typer.echo(f"         {note}")
