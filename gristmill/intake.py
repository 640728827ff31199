"""The inbox: which files are ready, whether their content is known, and how they get into the store."""

import gzip
import hashlib
import logging
import re
import time
import zlib
from collections.abc import Iterator, Sequence
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
_FOREIGN = {
    b"\x1f\x8b": "is packed with gzip; name it .jsonl.gz",
    b"\xff\xfe": "is UTF-16; save it as UTF-8",
    b"\xfe\xff": "is UTF-16; save it as UTF-8",
}


@dataclass(frozen=True, slots=True)
class Taken:
    """What happened to one file of the inbox: taken in now, or known from before."""

    path: Path
    file: FileRow
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
    for path in sorted(p for p in inbox.rglob("*") if p.is_file()):
        parts = path.relative_to(inbox).parts
        if len(parts) <= 2 and path.name.endswith(_SUFFIXES) and not any(part.startswith(".") for part in parts):
            found.append((path, parts[0] if len(parts) == 2 else None))
    return found


def strangers(inbox: Path) -> list[Path]:
    """What lies in the inbox and would never be taken: files that are not JSONL or lie too deep, links to folders."""
    known = {path for path, _ in inbox_files(inbox)}
    unfinished = (".part", ".tmp", ".crdownload")
    return sorted(
        p
        for p in inbox.rglob("*")
        if (p.is_symlink() or not p.is_dir())
        and p not in known
        and not any(part.startswith(".") for part in p.relative_to(inbox).parts)
        and not p.name.endswith(unfinished)
    )


def settled(paths: Sequence[Path], seconds: float) -> tuple[list[Path], list[Path]]:
    """Split files into those that have been still for `seconds` and that nobody has open for writing, and the others.

    Waits for at most `seconds` when a file changed just now. Files that vanish meanwhile are in neither list.
    """
    before = {path: stamp for path in paths if (stamp := _stamp(path)) is not None}
    youngest = max((mtime for _, mtime in before.values()), default=0.0)
    wait = min(seconds, youngest + seconds - time.time())
    if wait > 0:
        time.sleep(wait)
    held = _open_for_writing() if before else set()
    after = {path: stamp for path in before if (stamp := _stamp(path)) is not None}
    still = [path for path in after if after[path] == before[path] and str(path.resolve()) not in held]
    return still, [path for path in after if path not in still]


def take_in(
    path: Path,
    schema: Schema,
    *,
    ledger: Ledger,
    run_id: str,
    identity: Identity,
    max_line_bytes: int,
) -> Taken | None:
    """Read a file into the store unless its content was done before for the same schema, preset and model.

    None where another process is taking it in at this moment.

    Raises:
        InputError: the file can't be read. StorageError: the store can't be written. Nothing of it is half in.
    """
    name = output_name(path)
    content = _digest(path)
    key = _key(content, schema, replace(identity, again=""))
    known = ledger.find_file(key)
    if known is not None and identity.again:
        key = _key(content, schema, identity)
    elif known is not None:
        return Taken(path, known, known=True)
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
            unchanged=lambda: read.hexdigest() == content,
        )
    return None if file is None else Taken(path, file, known=False)


def archive(path: Path, folder: Path, file: FileRow) -> Path:
    """Move a taken file out of the inbox; a name that is taken by other content gets a number behind it.

    Raises:
        OSError: it can't be moved. InputError: what lies under its name in the archive can't be read.
    """
    target_folder = folder / file.schema
    target_folder.mkdir(parents=True, exist_ok=True)
    suffix = next(s for s in reversed(_SUFFIXES) if path.name.endswith(s))
    stem = path.name.removesuffix(suffix)
    target, number = target_folder / path.name, 1
    while target.exists() and not (target.is_file() and _digest(target) == _digest(path)):
        number += 1
        target = target_folder / f"{stem}-{number}{suffix}"
    path.replace(target)
    return target


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
        raise InputError(f"the gzip file {path.name} is damaged or cut short: {error}; copy it again") from error
    except OSError as error:
        raise InputError(
            f"{path.name} can't be read: {error.strerror or error}; give the user who runs this the right to"
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


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with opened(path) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _key(content: str, schema: Schema, identity: Identity) -> str:
    parts = (content, schema.name, schema.fingerprint, identity.preset, identity.model_fingerprint, identity.again)
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def _stamp(path: Path) -> tuple[int, float] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime


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
