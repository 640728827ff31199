"""The inbox: which files are ready, whether their content is known, and how they get into the store."""

import errno
import glob
import gzip
import hashlib
import logging
import os
import re
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, cast

import psutil

from gristmill.errors import InputError, SchemaError
from gristmill.records import bounded_lines, read_lines, readable
from gristmill.schema import Schema
from gristmill.store import FileRow, Ledger
from gristmill.store.database import storage_errors

log = logging.getLogger(__name__)

_SUFFIXES = (".jsonl", ".jsonl.gz")
_PIECE = 1 << 20
_ASIDE = ".aside."
"""What the folders begin with in which files stand for the moment of being archived."""
_FOREIGN = {
    b"\x1f\x8b": "is packed with gzip; name it .jsonl.gz",
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
}


Stamp = tuple[int, int, int]
"""A file's inode, size in bytes and time of change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What happened to one file of the inbox: taken in now, or known from before.

    `content` is the hash of what was read, `stamp` tells the file that it was read from.
    """

    path: Path
    file: FileRow
    content: str
    stamp: Stamp
    known: bool


@dataclass(frozen=True, slots=True)
class Identity:
    """What, beside the content, makes a file's work the same work: preset and model. `again` makes it new."""

    preset: str
    model_fingerprint: str
    model_name: str
    again: str = ""


def inbox_files(inbox: Path) -> list[tuple[Path, str | None]]:
    """JSONL files of the inbox with the schema that their folder names, in the order of their names.

    Hidden files and those that a copy in progress leaves (`.part`, `.tmp`) are none.
    """
    found: list[tuple[Path, str | None]] = []
    for path in _files(inbox):
        parts = path.relative_to(inbox).parts
        if len(parts) <= 2 and path.name.endswith(_SUFFIXES) and not _hidden(parts) and path.is_file():
            found.append((path, parts[0] if len(parts) == 2 else None))
    return found


def strangers(inbox: Path) -> list[Path]:
    """What lies in the inbox and would never be taken: files that are not JSONL or lie too deep, links to folders,
    folders that can't be read."""
    known = {path for path, _ in inbox_files(inbox)}
    unfinished = (".part", ".tmp", ".crdownload")
    closed: list[Path] = []
    others = [
        path
        for path in _files(inbox, closed)
        if path not in known and not _hidden(path.relative_to(inbox).parts) and not path.name.endswith(unfinished)
    ]
    return sorted([*others, *closed])


def _files(inbox: Path, closed: list[Path] | None = None) -> list[Path]:
    """Everything in the inbox that is no folder, by name; folders that can't be read go to `closed`."""
    found = []
    denied: list[OSError] = []
    for folder, folders, names in os.walk(inbox, onerror=denied.append):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        found += [Path(folder, name) for name in (*names, *links)]
        if closed is not None:
            # Names can be listed without the right to look behind them.
            closed += [Path(folder, name) for name in folders if not os.access(Path(folder, name), os.R_OK | os.X_OK)]
    if closed is not None:
        closed += [Path(str(error.filename)) for error in denied if Path(str(error.filename)) not in closed]
    return sorted(found)


def _hidden(parts: Sequence[str]) -> bool:
    return any(part.startswith(".") for part in parts)


def settled(paths: Sequence[Path], seconds: float) -> tuple[list[Path], list[Path]]:
    """Split files into those that have been still for `seconds` and that nobody has open for writing, and the others.

    Waits for at most `seconds` when a file changed just now. Files that vanish meanwhile are in neither list.
    """
    before = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}
    youngest = max((changed for _, _, changed in before.values()), default=0) / 1e9
    wait = min(seconds, youngest + seconds - time.time())
    if wait > 0:
        time.sleep(wait)
    held = _open_for_writing() if before else set()
    after = {path: stamp for path in before if (stamp := _stamp(path)) is not None}
    still = [path for path in after if after[path] == before[path] and str(path.resolve()) not in held]
    return still, sorted(after.keys() - set(still))


def take_in(
    path: Path,
    schema: Schema,
    *,
    ledger: Ledger,
    run_id: str,
    identity: Identity,
    max_line_bytes: int,
    in_use: Callable[[str], bool] = lambda _: False,
) -> Taken | None:
    """Read a file into the store unless its content was done before for the same schema, preset and model.

    None where another process is taking it in at this moment. `in_use` says whether outputs of a name exist already.

    Raises:
        InputError: the file can't be read. StorageError: the store can't be written. Nothing of it is half in.
    """
    name = output_name(path)
    content, stamp = _digest(path)
    key = _key(content, schema, replace(identity, again=""))
    known = ledger.find_file(key)
    if known is not None and identity.again:
        key = _key(content, schema, identity)
    elif known is not None:
        return Taken(path, known, content, stamp, known=True)
    read = hashlib.sha256()
    with opened(path) as source:
        file = ledger.add_file(
            run_id,
            read_lines(bounded_lines(_Digesting(source, read), max_line_bytes), _stem(path)),
            key=key,
            content_sha256=content,
            schema=schema.name,
            preset=identity.preset,
            model=identity.model_name,
            name=name,
            in_use=in_use,
            unchanged=lambda: read.hexdigest() == content and _stamp_of(os.fstat(source.fileno())) == stamp,
        )
    return None if file is None else Taken(path, file, content, stamp, known=False)


def archive(taken: Taken, folder: Path, note: Callable[[str], None]) -> None:
    """Move a taken file out of the inbox; a name that is taken by other content gets a number behind it.

    Only what was read is moved: where another file, or more of it, lies under the name by now, that stays in the inbox.
    `note` is told the place, relative to `folder`, before the file is there.

    Raises:
        OSError: it can't be moved. InputError: what lies under its name in the archive can't be read.
    """
    path = taken.path
    room = path.with_name(f"{_ASIDE}{socket.gethostname()}.{os.getpid()}")
    room.mkdir(exist_ok=True)
    aside = room / path.name
    try:
        path.rename(aside)
        if _stamp(aside) != taken.stamp:
            return
        target = _place_for(path.name, taken.content, folder / taken.file.schema)
        note(str(target.relative_to(folder)))
        if aside.is_symlink():
            # The archive holds content, not a way to where content was.
            _copy(aside, target)
            aside.unlink()
        else:
            _move(aside, target)
    finally:
        _clear(room)


def put_back_leftovers(inbox: Path) -> None:
    """Give files that a killed process had set aside, to archive them, their places in the inbox back."""
    for room in [inbox, *(path for path in inbox.iterdir() if path.is_dir())]:
        for left in room.glob(f"{_ASIDE}{glob.escape(socket.gethostname())}.*"):
            pid = left.name.rpartition(".")[2]
            if pid.isdigit() and not psutil.pid_exists(int(pid)):
                _clear(left)


def _clear(room: Path) -> None:
    """Put what is left in a room back beside it, under a name with a number where another file has its name by now."""
    for aside in room.iterdir():
        suffix = next((s for s in reversed(_SUFFIXES) if aside.name.endswith(s)), "")
        number, free = 1, room.with_name(aside.name)
        while free.exists():
            number += 1
            free = room.with_name(f"{aside.name.removesuffix(suffix)}-{number}{suffix}")
        aside.rename(free)
    room.rmdir()


def _place_for(name: str, content: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    suffix = next(s for s in reversed(_SUFFIXES) if name.endswith(s))
    target, number = folder / name, 1
    while target.exists() and not (target.is_file() and _digest(target)[0] == content):
        number += 1
        target = folder / f"{name.removesuffix(suffix)}-{number}{suffix}"
    return target


def _move(path: Path, target: Path) -> None:
    try:
        path.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The archive lies on another file system.
        _copy(path, target)
        path.unlink()


def _copy(path: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.part")
    with path.open("rb") as source, part.open("wb") as copy:
        shutil.copyfileobj(source, copy, _PIECE)
        copy.flush()
        os.fsync(copy.fileno())
    part.replace(target)


def output_name(path: Path) -> str:
    """The name under which a file's results appear: its own without the ending, safe as a file name anywhere."""
    safe = re.sub(r"[^\w.()+-]+", "_", _stem(path))
    # File systems allow 255 bytes; room is left for a hash, the ending and the mark of an unfinished file.
    return safe.encode()[:180].decode(errors="ignore").strip(".") or "unnamed"


def _stem(path: Path) -> str:
    name = readable(path.name)
    for suffix in reversed(_SUFFIXES):
        name = name.removesuffix(suffix)
    return name


def schema_name(folder: str | None, default: str | None) -> str:
    """The name of an inbox file's schema: its folder's, else the default.

    Raises:
        SchemaError: neither is given.
    """
    name = folder or default
    if name is None:
        raise SchemaError(
            "the file lies directly in the inbox and no schema was given; put it into inbox/SCHEMA/ or pass schema"
        )
    return name


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a JSONL file for reading lines as bytes, unpacking gzip.

    Raises:
        InputError: it can't be read, or is a gzip file that is damaged or cut short.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            magic = file.peek(2)[:2]
            if magic in _FOREIGN:
                raise InputError(f"{readable(path.name)} {_FOREIGN[magic]}")
            yield cast(IO[bytes], file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(
            f"the gzip file {readable(path.name)} is damaged or cut short: {error}; copy it again"
        ) from error
    except OSError as error:
        raise InputError(
            f"{readable(path.name)} can't be read: {error.strerror or error}; give the user who runs this the right to"
        ) from error


class _Digesting:
    """A file whose bytes go through a digest as they are read, however it is read."""

    def __init__(self, file: IO[bytes], digest: "hashlib._Hash") -> None:
        self._file, self._digest = file, digest

    def readline(self, limit: int) -> bytes:
        line = self._file.readline(limit)
        self._digest.update(line)
        return line


def _open_for_writing() -> set[str]:
    """Files that processes which we may look into have open for writing, where the platform tells."""
    held: set[str] = set()
    for process in psutil.process_iter():
        try:
            held |= {file.path for file in process.open_files() if getattr(file, "mode", "r") != "r"}
        except (psutil.Error, OSError):
            # Another user's process, or one that just ended: nothing to be learned from it.
            continue
    return held


def _digest(path: Path) -> tuple[str, Stamp]:
    """The hash of a file's content, unpacked, and the stamp of what was read."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
        return digest.hexdigest(), _stamp_of(os.fstat(file.fileno()))


def _key(content: str, schema: Schema, identity: Identity) -> str:
    parts = (content, schema.name, schema.fingerprint, identity.preset, identity.model_fingerprint, identity.again)
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def _stamp(path: Path) -> Stamp | None:
    try:
        return _stamp_of(path.stat())
    except OSError:
        return None


def _stamp_of(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_size, status.st_mtime_ns


def writable(folder: Path) -> None:
    """Make a folder and see that a file can be written there.

    Raises:
        StorageError: it can't.
    """
    with storage_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        # It has no name that could outlive a killed process.
        with TemporaryFile(dir=folder) as probe:
            probe.write(b"x")
