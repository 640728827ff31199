"""`gristmill queue`: what waits for another attempt or is dead, and what a person can do about it."""

import json
import sys
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from gristmill.cli.common import AsJson, Data, existing
from gristmill.errors import SetupError
from gristmill.faults import FaultCode
from gristmill.records import readable
from gristmill.settings import load_settings
from gristmill.store import QueueRow, RecordState
from gristmill.store.database import storage_errors

CODES = ", ".join(code.value for code in FaultCode)

app = typer.Typer(
    help="Records that wait for another attempt, and dead ones.",
    epilog=f"Codes of faults: {CODES}.",
    no_args_is_help=True,
)

SchemaName = Annotated[str | None, typer.Option(help="Only records of this schema.")]
Code = Annotated[
    FaultCode | None,
    typer.Option(
        metavar="CODE", help="Only records whose last fault has this code; `gristmill queue --help` lists them."
    ),
]
RecordId = Annotated[str | None, typer.Argument(help="Only the record of this id.")]
All = Annotated[bool, typer.Option("--all", help="All of them, when nothing else selects.")]


@app.command("ls")
def list_records(
    dead: Annotated[bool, typer.Option("--dead", help="The dead ones instead of the queued ones.")] = False,
    schema: SchemaName = None,
    fault: Code = None,
    limit: Annotated[int, typer.Option(min=1, help="How many at the most.")] = 50,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List queued records, the next due first."""
    desk = existing(load_settings(data=data)).desk
    states = [RecordState.DEAD] if dead else [RecordState.QUEUED]
    rows = desk.rows(states, schema=schema, fault=fault, limit=limit)
    if as_json:
        typer.echo(json.dumps([_as_json(row) for row in rows], ensure_ascii=False, indent=1))
        return
    if not rows:
        typer.echo(f"no {states[0]} records")
        return
    typer.echo(f"{'id':<28} {'schema':<12} {'file:line':<28} {'tries':>5}  {'fault':<13} {'next':<12} due")
    for row in rows:
        place = f"{row.file}:{row.line}"
        code = row.fault.code.value if row.fault else ""
        due = "" if dead else _due(row.due_at)
        typer.echo(
            f"{readable(row.record_id)[:28]:<28} {row.schema:<12} {place[:28]:<28} {row.attempts:>5}  {code:<13} "
            f"{'' if dead else row.preset:<12} {due}".rstrip()
        )


@app.command("show")
def show(
    record_id: Annotated[str, typer.Argument(help="The record's id.")], data: Data = None, as_json: AsJson = False
) -> None:
    """Show everything about a record: its state, its last fault with details, its input line."""
    desk = existing(load_settings(data=data)).desk
    rows = desk.rows(list(RecordState), record_id=record_id)
    if not rows:
        raise SetupError(
            f"no record has the id {record_id!r}; `gristmill queue ls` lists those that wait, with --dead the dead "
            "ones; a line that can't be read is called FILE:LINE"
        )
    shown = [_as_json(row) | {"input": desk.raw(row.pk).decode("utf-8", errors="backslashreplace")} for row in rows]
    if as_json:
        typer.echo(json.dumps(shown, ensure_ascii=False, indent=1))
        return
    for record in shown:
        for key, value in record.items():
            told = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            typer.echo(f"{key:<10} {readable(told)}")
        typer.echo("")


@app.command("export")
def export(
    dead: Annotated[bool, typer.Option("--dead", help="The dead ones instead of the queued ones.")] = False,
    schema: SchemaName = None,
    fault: Code = None,
    output: Annotated[Path | None, typer.Option(help="File to write; default: standard output.")] = None,
    data: Data = None,
) -> None:
    """Write the input lines of queued or dead records as they were, to be mended and dropped again."""
    desk = existing(load_settings(data=data)).desk
    rows = desk.rows([RecordState.DEAD if dead else RecordState.QUEUED], schema=schema, fault=fault)
    whole = [row for row in rows if row.fault is None or row.fault.code is not FaultCode.LINE_TOO_LONG]
    with nullcontext(sys.stdout.buffer) if output is None else storage_errors(str(output)), ExitStack() as stack:
        target = sys.stdout.buffer if output is None else stack.enter_context(output.open("wb"))
        for row in sorted(whole, key=lambda row: (row.schema, row.file, row.line)):
            target.write(desk.raw(row.pk) + b"\n")
        target.flush()
    typer.echo(f"{len(whole)} lines written", err=True)
    if left_out := len(rows) - len(whole):
        typer.echo(f"{left_out} lines that were too long are left out; the archived files hold them", err=True)


@app.command("requeue")
def requeue(
    record_id: RecordId = None, schema: SchemaName = None, fault: Code = None, every: All = False, data: Data = None
) -> None:
    """Make queued and dead records due now, with a fresh set of attempts."""
    _needs_selection(record_id, schema, fault, every, "requeue")
    moved = existing(load_settings(data=data)).requeue(schema=schema, fault=fault, record_id=record_id)
    if moved:
        typer.echo(f"{moved} records are due now; the next retry run tries them (python -m flows.drain_retries)")
    else:
        typer.echo("nothing requeued: no queued record or dead one that could be tried again is selected")


@app.command("drop")
def drop(
    record_id: RecordId = None, schema: SchemaName = None, fault: Code = None, every: All = False, data: Data = None
) -> None:
    """Give queued records up: they are dead, and stand in the dead file."""
    _needs_selection(record_id, schema, fault, every, "drop")
    moved = existing(load_settings(data=data)).drop(schema=schema, fault=fault, record_id=record_id)
    if moved:
        typer.echo(f"{moved} records are dead now; their lines stand in the dead folder")
    else:
        typer.echo("nothing dropped: no queued record is selected")


def _needs_selection(record_id: Any, schema: Any, fault: Any, every: bool, verb: str) -> None:
    if not (record_id or schema or fault or every):
        raise SetupError(f"nothing selected, nothing done; give an id, --schema, --fault or --all to {verb}")


def _as_json(row: QueueRow) -> dict[str, Any]:
    return {
        "id": row.record_id,
        "schema": row.schema,
        "file": row.file,
        "line": row.line,
        "state": row.state.value,
        "attempts": row.attempts,
        "preset": row.preset,
        "due": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.due_at)),
        "error": row.fault.as_json() if row.fault else None,
    }


def _due(due_at: float) -> str:
    seconds = due_at - time.time()
    return "now" if seconds <= 0 else f"in {seconds / 60:.0f} min" if seconds >= 60 else f"in {seconds:.0f} s"
