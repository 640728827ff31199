"""`gristmill eval`: how often answers are right, on records that carry the right answer."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from gristmill.cli.common import AsJson, Quantize
from gristmill.errors import SetupError
from gristmill.schema import load_schema
from gristmill.settings import load_settings

OnOff = Literal["auto", "on", "off"]


def evaluate(
    file: Annotated[Path, typer.Argument(help="A JSONL file whose lines have text and gold, the whole right answer.")],
    schema: Annotated[str, typer.Option(help="Name of a file in the schemas folder.")],
    examples: Annotated[
        Path | None, typer.Option(help="A JSONL file like FILE, for worked examples beside those of the schema.")
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            min=0,
            help="Cut FILE (after --limit) into so many parts; each has the others as examples.",
        ),
    ] = 0,
    examples_per_prompt: Annotated[
        int | None, typer.Option(min=0, help="So many examples in a prompt, those most like the record.")
    ] = None,
    absent: Annotated[Literal["omitted", "null"] | None, typer.Option(help="How an absent field is spelt.")] = None,
    reading: Annotated[OnOff | None, typer.Option(help="Whether verbatim fields are read off the text.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="As if no field were verbatim.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="The first so many records only.")] = None,
    attempts: Annotated[int, typer.Option(min=1, help="Attempts for each record.")] = 1,
    preset: Annotated[str | None, typer.Option(help="Decoding preset.")] = None,
    model: Annotated[str | None, typer.Option(help="Model directory, or embedded.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda:0 ...")] = None,
    quantize: Quantize = None,
    schemas: Annotated[Path | None, typer.Option(help="Schemas folder.")] = None,
    output: Annotated[Path | None, typer.Option(help="Also write an HTML page here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Answer labelled records and hold the answers against their gold.

    Nothing is written to the data folder. Exit status 2 where a file or the schema can't be used.
    """
    from gristmill.api import load
    from gristmill.evaluation import evaluate as run
    from gristmill.evaluation import examples_from, read_labelled
    from gristmill.evaluation.show import as_page, as_table, doubts, fields_table, how

    settings = load_settings(preset=preset, model=model, schemas=schemas, device=device, quantize=quantize)
    asked = load_schema(schema, settings.schemas)
    options = asked.options
    if plain:
        options = replace(options, verbatim=False)
    if absent is not None:
        options = replace(options, absent=absent)
    if reading is not None:
        options = replace(options, reading=reading)
    if examples_per_prompt is not None:
        options = replace(options, examples_per_prompt=examples_per_prompt)
    asked = replace(asked, options=options)
    records, left_out = read_labelled(file)
    records = records[:limit]
    if examples is not None:
        asked = replace(asked, examples=(*asked.examples, *examples_from(read_labelled(examples)[0], asked)))
    engine = load(
        settings.model,
        device=settings.device,
        dtype=settings.dtype,
        preset=settings.preset,
        quantize=settings.quantize,
    )
    found = run(engine, asked, records, folds=folds, preset=settings.preset, attempts=attempts).as_json()
    if output is not None:
        try:
            output.write_text(as_page(file.name, {schema: found}), encoding="utf-8")
        except OSError as error:
            raise SetupError(
                f"the page can't be written to {str(output)!r}: {error.strerror}; give another path"
            ) from error
    if left_out:
        typer.echo(f"left out: {left_out} lines of {file.name} that can't be read or have no gold", err=True)
    for doubt in doubts(found):
        typer.echo(f"mind: {doubt}", err=True)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    typer.echo(how(found))
    typer.echo()
    typer.echo(as_table({schema: found}))
    typer.echo()
    typer.echo(fields_table(found))
    if found["faults"]:
        typer.echo("\nwithout an answer: " + ", ".join(f"{count} {code}" for code, count in found["faults"].items()))
