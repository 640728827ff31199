"""The outbox and the dead folder: written whole from the store, in input order, and renamed into place."""

import glob
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import jsonlines
import psutil

from gristmill.faults import Fault
from gristmill.prompts import spell
from gristmill.store import FileRow, Ledger, RecordState
from gristmill.store.database import storage_errors


def write_outputs(file: FileRow, ledger: Ledger, outbox: Path, dead: Path) -> tuple[Path, Path | None]:
    """Write a file's accepted lines and, if there are any, its dead ones; return both paths.

    Each file appears complete or not at all; an earlier version is replaced. A dead file is removed when nothing
    in it is dead any more.

    Raises:
        StorageError: a folder can't be written; the store still has everything.
    """
    accepted = outbox / file.schema / f"{file.output_name}.jsonl"
    _write(accepted, ledger.accepted_lines(file.id), dumps=spell)
    refused = dead / file.schema / f"{file.output_name}.jsonl"
    if not ledger.states_of_file(file.id).get(RecordState.DEAD):
        with storage_errors(str(refused)):
            refused.unlink(missing_ok=True)
        return accepted, None
    _write(refused, (dead_line(*line) for line in ledger.dead_lines(file.id)), dumps=str)
    return accepted, refused


def dead_line(number: int, raw: bytes, fault: Fault) -> str:
    """The input line as it was with `"error"` added as the last key.

    A line that is no JSON object is given as `{"line", "raw", "error"}`, bytes that are not UTF-8 as
    backslash escapes.
    """
    error = spell(fault.as_json())
    try:
        text = raw.decode("utf-8")
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and "error" not in value:
        body = text.rstrip().removesuffix("}").rstrip()
        return f'{body}{", " if value else ""}"error": {error}}}'
    if isinstance(value, dict):
        # Dropped again with an older error in it: that one is replaced.
        return spell(value | {"error": fault.as_json()})
    shown = raw.decode("utf-8", errors="backslashreplace")
    return spell({"line": number, "raw": shown, "error": fault.as_json()})


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """Open a text file for writing that takes its name only when it is complete and on disk.

    Raises:
        StorageError: the folder can't be written; what stood there before still does.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with storage_errors(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _drop_leftovers(path)
            # In JSON and HTML written by us, what is no UTF-8 becomes an escape that readers understand.
            with part.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def _drop_leftovers(path: Path) -> None:
    """Remove unfinished versions of a file that killed processes left."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        pid = part.name.removesuffix(".part").rsplit(".", 1)[-1]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            part.unlink(missing_ok=True)


def _write(path: Path, lines: Iterable[Mapping[str, Any] | str], dumps: Callable[[Any], str]) -> None:
    with replacing(path) as file:
        jsonlines.Writer(file, dumps=dumps).write_all(lines)
