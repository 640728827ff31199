"""What must hold between rows of the store; within one row the database itself holds it."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select, text

from gristmill.store import owner as owners
from gristmill.store.database import Database
from gristmill.store.life import ACCEPTED, RecordState
from gristmill.store.tables import attempts, files, leases, records

_SHOWN = 5


class Invariants(Database):
    """Questions about the whole store."""

    def broken(self) -> Iterator[str]:
        """What should never be, each with some of the ids that it concerns."""
        counted = select(func.count()).where(records.c.file_id == files.c.id).scalar_subquery()
        whole = (files.c.complete == 1) & files.c.pruned_at.is_(None)
        short = select(files.c.id).where(whole, counted != files.c.lines)
        yield from self._found("files whose records are not as many as their lines", short)
        there = select(leases.c.id).where(leases.c.id == records.c.lease).exists()
        yield from self._records("leased records whose lease is gone", records.c.lease.is_not(None) & ~there)
        of_record = attempts.c.record_pk == records.c.id
        number = select(func.count()).where(of_record).scalar_subquery()
        last = select(func.coalesce(func.max(attempts.c.number), 0)).where(of_record).scalar_subquery()
        miscounted = (number != records.c.attempts) | (last != records.c.attempts)
        yield from self._records("records whose attempts are not as many as they count", miscounted)
        verdict = select(attempts.c.verdict).where(of_record, attempts.c.number == records.c.attempts).scalar_subquery()
        accepted = records.c.state == RecordState.ACCEPTED.value
        yield from self._records(
            "accepted records whose last attempt was not", accepted & (func.coalesce(verdict, "") != ACCEPTED)
        )
        yield from self._records(
            "records that ended or are queued with an attempt nobody acted upon",
            (records.c.state != RecordState.LEASED.value) & (records.c.attempts != records.c.settled),
        )

    def left_by_the_dead(self) -> tuple[int, int]:
        """Records leased, and files half read, by processes that are no more; the next run takes them up."""
        with self._reading() as db:
            held = select(leases.c.owner, func.count()).join(records, records.c.lease == leases.c.id)
            orphans = sum(n for owner, n in db.execute(held.group_by(leases.c.owner)) if not owners.lives(owner))
            readers = db.execute(select(files.c.reader).where(files.c.complete == 0)).scalars().all()
        return orphans, sum(not owners.lives(reader) for reader in readers)

    def damaged(self) -> Iterator[str]:
        """What SQLite finds wrong in its file; PostgreSQL has tools of its own for that (pg_amcheck)."""
        if self._engine.dialect.name != "sqlite":
            return
        with self._reading() as db:
            for (line,) in db.execute(text(f"PRAGMA integrity_check({_SHOWN})")):
                if line != "ok":
                    yield f"the database file is damaged: {line}"
            rows = db.execute(text("PRAGMA foreign_key_check")).fetchmany(_SHOWN)
            if rows:
                yield f"rows that refer to rows which are gone: {', '.join(f'{row[0]} {row[1]}' for row in rows)}"

    def _records(self, what: str, which: ColumnElement[bool]) -> Iterator[str]:
        query = select(records.c.id).join(files, files.c.id == records.c.file_id)
        yield from self._found(what, query.where(files.c.complete == 1, files.c.pruned_at.is_(None), which))

    def _found(self, what: str, query: Select[Any]) -> Iterator[str]:
        with self._reading() as db:
            some = db.execute(query.limit(_SHOWN)).scalars().all()
            count = db.execute(select(func.count()).select_from(query.subquery())).scalar_one() if some else 0
        if count:
            yield f"{count} {what} (ids {', '.join(map(str, some))}{', ...' if count > _SHOWN else ''})"
