"""Opening the database, and saying in our words what it refuses."""

import errno
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from gristmill.errors import SetupError, StorageError
from gristmill.store import migrations

T = TypeVar("T")

_BUSY_SECONDS = 30

_ALONE = 0x67726973
"""PostgreSQL's advisory lock for what only one process may do at a time ("gris")."""


def open_database(url: str | URL) -> Engine:
    """Open the database and bring its tables to the present form, or make them where they are missing.

    SQLite runs in WAL mode with every commit on disk before it returns.

    Raises:
        SetupError: the URL is not one, its driver is not installed, or a newer version made the tables.
        StorageError: it can't be opened or written.
    """
    parsed = _parsed(url)
    try:
        # Parameters are texts of records: they stand in no error's message.
        engine = create_engine(parsed, hide_parameters=True, pool_pre_ping=True)
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise SetupError(
            "GRISTMILL_DATABASE_URL: the driver of PostgreSQL is not installed; pip install 'gristmill[postgres]'"
        ) from error
    with storage_errors(shown_url(parsed)):
        if engine.dialect.name == "sqlite":
            _prepare_file(parsed)
            event.listen(engine, "connect", _prepare_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
        else:
            event.listen(engine, "connect", _prepare_postgresql)
        _bring_up_to_date(engine)
    return engine


def shown_url(url: URL) -> str:
    """A database's address without anything that could be secret: kind, host and name."""
    if url.get_backend_name() == "sqlite":
        return f"sqlite:///{url.database}"
    return f"postgresql://{url.host or ''}{f':{url.port}' if url.port else ''}/{url.database or ''}"


_FORMS = "use sqlite:///FILE or postgresql://USER@HOST/NAME"


def _parsed(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # The message of what went wrong holds parts of the URL.
        raise SetupError(f"GRISTMILL_DATABASE_URL is not a database URL; {_FORMS}") from error
    if parsed.drivername == "postgresql":
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise SetupError(f"GRISTMILL_DATABASE_URL: {parsed.drivername!r} is not supported; {_FORMS}")
    if "@" in (parsed.host or ""):
        raise SetupError("GRISTMILL_DATABASE_URL: a name or password in it holds an @; write that as %40")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise SetupError(f"GRISTMILL_DATABASE_URL: a database in memory would lose everything; {_FORMS}")
    return parsed


def _prepare_file(url: URL) -> None:
    """Make the folder of a new database; an old one that is empty was one and is none any more."""
    file = Path(str(url.database).removeprefix("file:"))
    if "uri" not in url.query and file.exists() and file.stat().st_size == 0 and not _is_being_made(file):
        raise StorageError(_sentence(str(file), "the file is empty", _DAMAGED))
    if "uri" not in url.query:
        file.parent.mkdir(parents=True, exist_ok=True)


def _is_being_made(file: Path) -> bool:
    """Whether another process made the file just now and has yet to write to it."""
    return time.time() - file.stat().st_mtime < _BUSY_SECONDS


_patience: ContextVar[float | None] = ContextVar("patience", default=None)


@contextmanager
def hurried(seconds: float = 1.5) -> Iterator[None]:
    """Wait for others that hold the database no longer than so, because somebody waits for this process to end."""
    token = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(token)


def _bring_up_to_date(engine: Engine) -> None:
    with engine.connect().execution_options(gristmill_reading=True) as db, db.begin():
        if migrations.revision_of(db) == migrations.HEAD:
            return
    with engine.connect() as db:
        if engine.dialect.name == "sqlite":
            # Tables are rebuilt, and for a moment others refer to none.
            db.connection.cursor().execute("PRAGMA foreign_keys=OFF")
        with db.begin():
            hold_alone(db)
            migrations.upgrade(db)
        # The connection is not to be used without foreign keys.
        db.invalidate()


def hold_alone(db: Connection) -> None:
    """Until this transaction ends, no other one that asks for the same goes on. SQLite's writers are alone anyway."""
    if db.dialect.name == "postgresql":
        db.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ALONE})


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


_CONNECTION = "see that the server runs and that its address, user and password in GRISTMILL_DATABASE_URL are right"
# PostgreSQL's codes: https://www.postgresql.org/docs/current/errcodes-appendix.html
_BY_SQLSTATE = {
    "53100": _SPACE,
    "42501": _RIGHTS,
    "25006": _RIGHTS,
    "55P03": _BUSY,
    "40P01": _BUSY,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}


@contextmanager
def storage_errors(where: str = "the database", *, files: bool = True) -> Iterator[None]:
    """Translate what the database, and with `files` the file system, refuses into a `StorageError` that says what
    to do."""
    try:
        yield
    except DBAPIError as error:
        reason = str(error.orig).strip().splitlines()[0] if error.orig else type(error).__name__
        raise StorageError(_sentence(where, reason, _way_out(error))) from error
    except OSError as error:
        if not files:
            raise
        reason = error.strerror or str(error)
        raise StorageError(_sentence(error.filename or where, reason, _BY_ERRNO.get(error.errno or 0))) from error


def _sentence(where: str, reason: str, way_out: str | None) -> str:
    held = "nothing was changed" if way_out == _DAMAGED else "what was committed before is safe"
    return f"{where}: {reason}; {held}; {way_out or 'mend that and run again'}"


def _way_out(error: DBAPIError) -> str | None:
    # SQLite's extended codes carry the primary one in their low byte.
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    state = getattr(error.orig, "sqlstate", None)
    lost = error.connection_invalidated or (state is None and error.orig.__class__.__module__.startswith("psycopg"))
    return _CONNECTION if lost else _BY_SQLITE_CODE.get(code) or _BY_SQLSTATE.get(state or "")


_SLICE_SECONDS = 0.25
"""SQLite waits for others in slices, between which a signal is noticed."""


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # pysqlite's own transaction handling would begin late and deadlock; we begin ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_SECONDS * 1000:.0f}")
    # While another connection turns the same new file to WAL, SQLite refuses at once, whatever the timeout says.
    _patiently(lambda: cursor.execute("PRAGMA journal_mode=WAL"))
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute(f"PRAGMA busy_timeout={_SLICE_SECONDS * 1000:.0f}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    if connection.get_execution_options().get("gristmill_reading"):
        connection.exec_driver_sql("BEGIN")
        return
    _patiently(lambda: connection.exec_driver_sql("BEGIN IMMEDIATE"))


def _patiently(act: Callable[[], object]) -> None:
    """Do what another connection may be in the way of, again and again as long as patience lasts."""
    until = time.monotonic() + (_patience.get() or _BUSY_SECONDS)
    while True:
        try:
            act()
            return
        except (OperationalError, sqlite3.OperationalError) as error:
            code = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0) & 0xFF
            if code != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _prepare_postgresql(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_encoding')")
        (encoding,) = cursor.fetchone()
        cursor.execute(f"SET lock_timeout = '{_BUSY_SECONDS * 1000:.0f}ms'")
    connection.commit()
    if encoding != "UTF8":
        raise SetupError(
            f"the database's encoding is {encoding}, which can't hold every record; create it with ENCODING 'UTF8'"
        )


class Database:
    """What the tables' classes share: transactions that write or only read, with errors in our words."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def _writing(self, *, alone: bool = False) -> Iterator[Connection]:
        with storage_errors(files=False), self._engine.begin() as connection:
            if (patience := _patience.get()) and connection.dialect.name == "postgresql":
                connection.execute(text(f"SET LOCAL lock_timeout = '{patience * 1000:.0f}ms'"))
            if alone:
                hold_alone(connection)
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """One moment of the database, however long the reading takes."""
        options: dict[str, Any] = {"gristmill_reading": True}
        if self._engine.dialect.name == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"
        with (
            storage_errors(files=False),
            self._engine.connect().execution_options(**options) as connection,
            connection.begin(),
        ):
            yield connection


def in_pages(items: Sequence[T], size: int = 5000) -> Iterator[Sequence[T]]:
    """The items in pages that a statement can name one by one."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def in_pages_of_bytes(sizes: Iterable[tuple[int, int]], most: int = 8 << 20, rows: int = 256) -> Iterator[list[int]]:
    """Ids, given with the sizes of their rows, in pages of up to `most` bytes and `rows` rows; one row at least."""
    page: list[int] = []
    held = 0
    for pk, size in sizes:
        if page and (held + size > most or len(page) == rows):
            yield page
            page, held = [], 0
        page.append(pk)
        held += size
    if page:
        yield page
