"""Opening the database, and saying in our words what it refuses."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from gristmill.errors import SetupError, StorageError
from gristmill.store.tables import metadata

_BUSY_SECONDS = 30


def open_database(url: str | URL) -> Engine:
    """Open the database and make its tables where they are missing.

    SQLite runs in WAL mode with every commit on disk before it returns.

    Raises:
        SetupError: the URL is not one.
        StorageError: it can't be opened or written.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise SetupError("GRISTMILL_DATABASE_URL is not a database URL; use sqlite:///FILE") from error
    try:
        engine = create_engine(parsed)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        kind = parsed.drivername
        raise SetupError(f"GRISTMILL_DATABASE_URL: no driver for {kind!r} is installed; use sqlite:///FILE") from error
    with storage_errors(parsed.render_as_string(hide_password=True)):
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        metadata.create_all(engine)
    return engine


_SPACE = "free some space and run again"
_RIGHTS = "give the user who runs this the right to write there and run again"
_DAMAGED = "the file is damaged: put a backup in its place, or move it away to start with an empty queue"
_BUSY = "another process holds it; end that or run again later"

_BY_ERRNO = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: _RIGHTS,
}
_BY_SQLITE_CODE = {
    sqlite3.SQLITE_FULL: _SPACE,
    sqlite3.SQLITE_READONLY: _RIGHTS,
    sqlite3.SQLITE_PERM: _RIGHTS,
    sqlite3.SQLITE_CANTOPEN: _RIGHTS,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
}


@contextmanager
def storage_errors(where: str = "the database") -> Iterator[None]:
    """Translate what the database or the file system refuses into a `StorageError` that says what to do."""
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else type(error).__name__
        # SQLite's extended codes carry the primary one in their low byte.
        code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
        raise StorageError(_sentence(where, reason, _BY_SQLITE_CODE.get(code))) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(_sentence(error.filename or where, reason, _BY_ERRNO.get(error.errno or 0))) from error


def _sentence(where: str, reason: str, way_out: str | None) -> str:
    return f"{where}: {reason}; what was committed before is safe; {way_out or 'mend that and run again'}"


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # pysqlite's own transaction handling would begin late and deadlock; we begin ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    reading = connection.get_execution_options().get("gristmill_reading")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


class Database:
    """What the tables' classes share: transactions that write or only read, with errors in our words."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with storage_errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with (
            storage_errors(),
            self._engine.connect().execution_options(gristmill_reading=True) as connection,
            connection.begin(),
        ):
            yield connection
