"""`gristmill schema`: which schemas there are, and whether a model can be held to them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from gristmill.errors import SchemaError, SetupError
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
) -> None:
    """Make a grammar of a schema and say what it leaves open. Exit status 1 where an example breaks its own schema."""
    from gristmill.grammar.bounds import unbounded
    from gristmill.grammar.constraint import constraint_for, examples_refused

    folder = load_settings(schemas=schemas).schemas
    names = [name] if name else schema_names(folder)
    if not names:
        raise SetupError(f"no schema files in {folder}; set GRISTMILL_SCHEMAS or add one")
    broken = False
    for each in names:
        try:
            schema = load_schema(each, folder)
            constraint = constraint_for(schema)
        except SchemaError as error:
            typer.echo(f"{each}: {error}")
            broken = True
            continue
        refused = examples_refused(schema, constraint)
        broken = broken or bool(refused)
        typer.echo(f"{each}: class {schema.model.__name__}, {len(schema.examples)} worked examples, grammar compiled")
        if not schema.examples:
            typer.echo("  no worked example: a small model needs at least one; add EXAMPLES beside the class")
        for number in refused:
            typer.echo(f"  example {number} could not be written under the grammar; compare its output with the fields")
        for path in unbounded(schema.json_schema):
            typer.echo(f"  unbounded, an answer may run to its token budget: {path}")
        for path in constraint.relaxed:
            typer.echo(f"  not in the grammar, left to validation: {path}")
    raise typer.Exit(1 if broken else 0)
