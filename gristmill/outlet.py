"""The outbox and the dead folder: written whole from the store, in input order, and renamed into place."""

import glob
import gzip
import hashlib
import io
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, cast

import jsonlines
import psutil

from gristmill import openai_batch
from gristmill.errors import InvariantError
from gristmill.faults import Fault
from gristmill.grammar.json_spelling import spell, spell_strictly
from gristmill.remote import Remote
from gristmill.store import Ends, FileRow, Outputs, RecordState
from gristmill.store.database import storage_errors

_ENDINGS = (".jsonl", ".jsonl.gz")


def output_paths(file: FileRow, outbox: Path, dead: Path, *, compress: bool) -> tuple[Path, Path, Path]:
    """Where a file's accepted lines, its dead lines and the mark that it is done go."""
    ending = _ENDINGS[compress]
    name, folder = file.output_name, outbox / file.schema
    return folder / f"{name}{ending}", dead / file.schema / f"{name}{ending}", folder / f"{name}.done"


def outputs_exist(folder: Path, name: str) -> bool:
    """Whether results of this name lie in a schema's folder of the outbox."""
    return any((folder / f"{name}{ending}").exists() for ending in _ENDINGS)


def write_outputs(
    file: FileRow, outputs: Outputs, outbox: Path, dead: Path, *, compress: bool, remote: Remote | None = None
) -> Ends:
    """Write a file's accepted lines and, if there are any, its dead ones; the moment that they show.

    Each appears complete or not at all, and replaces an earlier version. Once every record is accepted or dead, the
    mark `NAME.done` appears as the last of the three; while one is not, there is no mark. A dead file is removed when
    nothing in it is dead any more. What was pruned stays as it is. `remote` gets the same in the same order.

    Raises:
        InvariantError: the file's records are not as many as its lines; nothing was written.
        StorageError: a folder can't be written; the store still has everything.
    """
    accepted, refused, mark = output_paths(file, outbox, dead, compress=compress)
    with ExitStack() as ready:
        with outputs.ends(file.id) as ends:
            if ends.pruned:
                return ends
            if sum(ends.states.values()) != ends.lines:
                raise InvariantError(
                    f"file {file.output_name!r} of schema {file.schema!r} has {ends.lines} lines but "
                    f"{sum(ends.states.values())} records; the database was changed by hand or is damaged; put a "
                    "backup in its place"
                )
            any_dead = bool(ends.states.get(RecordState.DEAD))
            lines = (accepted_line(file, row) for row in ends.accepted())
            parts = {accepted: ready.enter_context(_prepared(accepted, lines))}
            if any_dead:
                bad = (dead_line(*one, file.key) for one in ends.dead())
                parts[refused] = ready.enter_context(_prepared(refused, bad))

        gone = [_other(accepted), _other(refused), *(() if any_dead else (refused,))]

        def show() -> None:
            with storage_errors(str(accepted.parent)):
                if not ends.complete:
                    mark.unlink(missing_ok=True)
                for path, part in parts.items():
                    part.replace(path)
                for path in gone:
                    path.unlink(missing_ok=True)
                for folder in {path.parent for path in parts}:
                    _sync_folder(folder)
                if ends.complete:
                    _write_mark(mark, file, ends.states, accepted, refused if any_dead else None)
            if remote is not None:
                _mirror(remote, file.schema, [*parts], gone, mark)

        outputs.publish(file.id, ends.version, show)
    return ends


def _mirror(remote: Remote, schema: str, written: list[Path], gone: list[Path], mark: Path) -> None:
    """Do in object storage what was done here: the mark goes first or comes last."""
    if not mark.exists():
        remote.remove(mark.name, "outbox", schema)
    for path in written:
        remote.put(path, path.parent.parent.name, schema)
    for path in gone:
        remote.remove(path.name, path.parent.parent.name, schema)
    if mark.exists():
        remote.put(mark, "outbox", schema)


def accepted_line(file: FileRow, row: Mapping[str, Any]) -> str:
    """The outbox line of an accepted record, in the form in which it was asked."""
    if row["form"] == "openai":
        return openai_batch.answer_line(row, file.key)
    beside = json.loads(row["beside"])
    written = beside.pop("format", "json")
    head = {"id": row["record_id"], "line": row["line"], "schema": file.schema, "format": written}
    rest = beside | {
        "attempts": row["attempts"],
        "preset": row["preset"],
        "model": row["model"],
        "usage": {"prompt_tokens": row["prompt_tokens"], "completion_tokens": row["completion_tokens"]},
        "finish_reason": row["finish_reason"],
    }
    # The output is JSON text already, spelt as the rest is.
    return f'{spell(head)[:-1]}, "output": {row["output"]}, {spell(rest)[1:]}'


def dead_line(number: int, raw: bytes, fault: Fault, file_key: str) -> str:
    """The input line as it was with `"error"` added as the last key; of a batch line, that format's error line.

    A line that is no JSON object is given as `{"line", "raw", "error"}`, bytes that are not UTF-8 as
    backslash escapes.
    """
    error = spell(fault.as_json())
    try:
        text = raw.decode("utf-8")
        # What JSON has no word for, such as NaN, would not be JSON behind an error either.
        value = json.loads(text, parse_constant=_no_constant)
        again = spell_strictly(value | {"error": fault.as_json()}) if isinstance(value, dict) else ""
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and openai_batch.is_batch_line(value):
        return openai_batch.error_line(value, number, fault, file_key)
    if isinstance(value, dict) and "error" not in value:
        body = text.rstrip().removesuffix("}").rstrip()
        return f'{body}{", " if value else ""}"error": {error}}}'
    if isinstance(value, dict):
        # Dropped again with an older error in it: that one is replaced.
        return again
    shown = raw.decode("utf-8", errors="backslashreplace")
    return spell({"line": number, "raw": shown, "error": fault.as_json()})


def drop_leftovers(*folders: Path) -> None:
    """Remove the unfinished files that killed processes of this machine left in these folders and those within them."""
    with storage_errors(str(folders[0])):
        for folder in folders:
            for part in folder.rglob(f".*.{glob.escape(socket.gethostname())}.*.part"):
                pid = part.name.removesuffix(".part").rsplit(".", 1)[-1]
                if pid.isdigit() and not psutil.pid_exists(int(pid)):
                    part.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """Open a text file for writing that takes its name only when it is complete and on disk.

    Raises:
        StorageError: the folder can't be written; what stood there before still does.
    """
    part = _part_of(path)
    with storage_errors(str(path)):
        try:
            with _part(path, part) as file:
                yield file
            part.replace(path)
            _sync_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)


@contextmanager
def _prepared(path: Path, lines: Iterable[str]) -> Iterator[Path]:
    """The lines in a file beside `path`, on disk; gone afterwards unless somebody renamed it."""
    part = _part_of(path)
    with storage_errors(str(path)):
        try:
            with _part(path, part) as file:
                jsonlines.Writer(file, dumps=str).write_all(lines)
            yield part
        finally:
            part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    # Names of files are up to 255 bytes long, and so this one can't hold the other.
    short = hashlib.sha256(path.name.encode()).hexdigest()[:16]
    return path.with_name(f".{short}.{socket.gethostname()}.{os.getpid()}.part")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@contextmanager
def _part(path: Path, part: Path) -> Iterator[IO[str]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with part.open("wb") as raw:
        # Without name and time, the same lines make the same bytes.
        packed = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if path.name.endswith(".gz") else None
        # In JSON and HTML written by us, what is no UTF-8 becomes an escape that readers understand.
        target = cast(IO[bytes], packed or raw)
        with io.TextIOWrapper(target, "utf-8", "backslashreplace", newline="\n") as file:
            yield file
            file.flush()
            if packed is not None:
                packed.close()
            raw.flush()
            os.fsync(raw.fileno())


def _sync_folder(folder: Path) -> None:
    """A rename is on disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _other(path: Path) -> Path:
    """The same output in the other ending, left from a time before `compress` was set otherwise."""
    if path.name.endswith(".gz"):
        return path.with_name(path.name.removesuffix(".gz"))
    return path.with_name(f"{path.name}.gz")


def _write_mark(
    mark: Path, file: FileRow, states: Mapping[RecordState, int], accepted: Path, refused: Path | None
) -> None:
    content = {
        "schema": file.schema,
        "lines": file.lines,
        "accepted": states.get(RecordState.ACCEPTED, 0),
        "dead": states.get(RecordState.DEAD, 0),
        "outbox": accepted.name,
        "dead_file": refused.name if refused else None,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with replacing(mark) as target:
        target.write(spell(content) + "\n")
