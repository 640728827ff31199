"""`gristmill schema`: which schemas there are, and whether a model can be held to them."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gristmill.errors import SchemaError, SetupError
from gristmill.presets import get_preset
from gristmill.schema import load_schema, schema_names
from gristmill.settings import load_settings

app = typer.Typer(help="The schemas folder.", no_args_is_help=True)

Folder = Annotated[Path | None, typer.Option(help="Schemas folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of text.")]


@app.command("ls")
def list_schemas(schemas: Folder = None, as_json: AsJson = False) -> None:
    """List the schemas with their fields and how many worked examples they have."""
    folder = load_settings(schemas=schemas).schemas
    rows: list[dict[str, Any]] = []
    for name in schema_names(folder):
        try:
            schema = load_schema(name, folder)
        except SchemaError as error:
            rows.append({"name": name, "error": str(error)})
        else:
            fields = list(schema.json_schema.get("properties", {}))
            rows.append(
                {"name": name, "class": schema.model.__name__, "fields": fields, "examples": len(schema.examples)}
            )
    if as_json:
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    if not rows:
        typer.echo(f"no schema files in {folder}")
    for row in rows:
        if "error" in row:
            typer.echo(f"{row['name']:<14} {row['error']}")
        else:
            typer.echo(f"{row['name']:<14} {row['examples']} examples; {', '.join(row['fields'])}")


@app.command("check")
def check(
    name: Annotated[str | None, typer.Argument(help="A schema's name; all of them if left out.")] = None,
    schemas: Folder = None,
    preset: Annotated[str | None, typer.Option(help="The preset whose budget answers have to fit.")] = None,
    model: Annotated[str | None, typer.Option(help="Count tokens as this model (a directory, or embedded).")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a grammar of a schema, try its examples, and say how long answers can get and what is left open.

    Exit status 1 where a schema can't be used or an example breaks its own schema.
    """
    from gristmill.cli.schema_report import checked, lines_of

    settings = load_settings(schemas=schemas, preset=preset)
    names = [name] if name else schema_names(settings.schemas)
    if not names:
        raise SetupError(f"no schema files in {settings.schemas}; set GRISTMILL_SCHEMAS or add one")
    reports = [checked(each, settings.schemas, get_preset(settings.preset), model) for each in names]
    if as_json:
        typer.echo(json.dumps([asdict(report) for report in reports], ensure_ascii=False, indent=1))
    else:
        typer.echo("\n\n".join("\n".join(lines_of(report)) for report in reports))
    raise typer.Exit(0 if all(report.sound for report in reports) else 1)


@app.command("xsd")
def xsd(
    name: Annotated[str, typer.Argument(help="A schema's name.")],
    schemas: Folder = None,
) -> None:
    """Print the XML Schema (XSD 1.0) of the documents that a schema's answers are as XML."""
    from dataclasses import replace

    from gristmill.grammar.constraint import constraint_for
    from gristmill.grammar.xml.spelling import XmlSpelling
    from gristmill.grammar.xml.xsd import xsd_of

    schema = load_schema(name, load_settings(schemas=schemas).schemas)
    spelling = constraint_for(replace(schema, options=replace(schema.options, format="xml"))).spelling
    if not isinstance(spelling, XmlSpelling):
        raise SetupError(f"schema {name!r} is a class of pydantic-xml with a mapping of its own; it has no XSD here")
    typer.echo(xsd_of(spelling))
