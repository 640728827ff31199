"""A data folder's inbox and outbox in object storage: what lies there comes in, what is done goes out.

The local data folder stays the place where everything happens; this mirrors its edges through fsspec
(https://filesystem-spec.readthedocs.io).
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import fsspec

from gristmill.errors import SetupError, StorageError

_SUFFIXES = (".jsonl", ".jsonl.gz")


class Remote:
    """`inbox/`, `outbox/` and `dead/` below a URL such as `s3://bucket/prefix`.

    Raises:
        SetupError: no driver for the URL's kind is installed, or it is none.
    """

    def __init__(self, url: str) -> None:
        kind = url.partition("://")[0]
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            way_out = "pip install 'gristmill[s3]'" if kind == "s3" else "install fsspec's driver for it"
            raise SetupError(f"GRISTMILL_REMOTE: {kind}:// can't be used: {error}; {way_out}") from error
        self._shown = f"{kind}://{self._root}"
        self._pulled: dict[str, str] = {}

    def pull(self, inbox: Path) -> None:
        """Copy what lies in the remote inbox into the local one, each file complete or not at all.

        Raises:
            StorageError: the storage can't be reached or the inbox not be written.
        """
        with self._errors():
            root = f"{self._root}/inbox"
            self._files.invalidate_cache()
            for found in self._files.find(root) if self._files.exists(root) else ():
                place = PurePosixPath(found).relative_to(PurePosixPath(root))
                if len(place.parts) > 2 or ".." in place.parts or not place.name.endswith(_SUFFIXES):
                    continue
                local = inbox.joinpath(*place.parts)
                if local.exists():
                    continue
                local.parent.mkdir(parents=True, exist_ok=True)
                part = local.with_name(f".{socket.gethostname()}.{os.getpid()}.part")
                mark = self._mark(found)
                self._files.get_file(found, str(part))
                self._pulled[str(place)] = mark
                part.replace(local)

    def taken(self, inbox: Path, path: Path) -> None:
        """Remove a file from the remote inbox that was taken in, unless another one has its name by now.

        Raises:
            StorageError: it can't be removed; the next run finds that it is known and tries again.
        """
        place = path.relative_to(inbox).as_posix()
        mark = self._pulled.pop(place, None)
        if mark is None:
            return
        with self._errors():
            there = f"{self._root}/inbox/{place}"
            self._files.invalidate_cache()
            if self._files.exists(there) and self._mark(there) == mark:
                self._files.rm_file(there)

    def put(self, local: Path, folder: str, schema: str) -> None:
        """Copy an output to its place in the remote `folder` (`outbox` or `dead`).

        Raises:
            StorageError: it can't be written.
        """
        with self._errors():
            self._files.makedirs(f"{self._root}/{folder}/{schema}", exist_ok=True)
            self._files.put_file(str(local), f"{self._root}/{folder}/{schema}/{local.name}")

    def remove(self, name: str, folder: str, schema: str) -> None:
        """Remove an output from the remote `folder`, if it is there.

        Raises:
            StorageError: it can't be removed.
        """
        with self._errors():
            there = f"{self._root}/{folder}/{schema}/{name}"
            self._files.invalidate_cache()
            if self._files.exists(there):
                self._files.rm_file(there)

    def _mark(self, found: str) -> str:
        """What changes with a file's content."""
        about = self._files.info(found)
        return str(about.get("ETag") or (about.get("mtime"), about.get("size")))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # Each driver raises errors of its own; their texts may hold keys.
            raise StorageError(
                f"{self._shown}: {type(error).__name__}; what was committed before is safe; see that the storage "
                "can be reached and its keys are right, and run again"
            ) from error
