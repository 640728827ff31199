"""Forgetting what ended long ago. A file's row stays: its content is known for ever, and its name is taken."""

import json
import time
from dataclasses import dataclass

from sqlalchemy import delete, func, select, update

from gristmill.store.database import Database
from gristmill.store.ledger import FileRow, file_row
from gristmill.store.life import UNFINISHED
from gristmill.store.tables import attempts, files, leases, records, runs

_PAGE = 2000


@dataclass(frozen=True, slots=True)
class Old:
    """A file all of whose records ended before a time, with the places of its copies in the archive."""

    file: FileRow
    archived: tuple[str, ...]
    records: int


class Retention(Database):
    """What of the store is old, and its removal."""

    def ended_before(self, cutoff: float) -> list[Old]:
        """Files that are finished, written out, and have not changed since `cutoff` (seconds since 1970)."""
        unfinished = select(records.c.id).where(records.c.file_id == files.c.id, records.c.state.in_(UNFINISHED))
        count = select(func.count()).where(records.c.file_id == files.c.id).scalar_subquery().label("records")
        query = select(files, count).where(
            files.c.complete == 1,
            files.c.changed_at < cutoff,
            files.c.written_version >= files.c.version,
            ~unfinished.exists(),
        )
        with self._reading() as db:
            rows = db.execute(query.order_by(files.c.id)).mappings().all()
        # One that was pruned before has none left, unless that was broken off.
        return [
            Old(file_row(row), tuple(json.loads(row["archived"])), row["records"])
            for row in rows
            if row["records"] or row["pruned_at"] is None
        ]

    def forget_records(self, file_id: int) -> None:
        """Remove a file's records and attempts, in pages, so that nobody waits long."""
        with self._writing() as db:
            gone = {"pruned_at": func.coalesce(files.c.pruned_at, time.time()), "archived": "[]"}
            db.execute(update(files).where(files.c.id == file_id).values(**gone))
        while True:
            with self._writing() as db:
                page = select(records.c.id).where(records.c.file_id == file_id).limit(_PAGE)
                ids = db.execute(page).scalars().all()
                db.execute(delete(attempts).where(attempts.c.record_pk.in_(ids)))
                db.execute(delete(records).where(records.c.id.in_(ids)))
            if len(ids) < _PAGE:
                return

    def runs_before(self, cutoff: float) -> list[str]:
        """Runs that began before `cutoff` and that nothing refers to any more but files that they took in."""
        in_use = (
            select(records.c.id).where(records.c.run_id == runs.c.id).exists()
            | select(attempts.c.id).where(attempts.c.run_id == runs.c.id).exists()
            | select(leases.c.id).where(leases.c.run_id == runs.c.id).exists()
            | select(files.c.id).where(files.c.run_id == runs.c.id).exists()
        )
        with self._reading() as db:
            return list(db.execute(select(runs.c.id).where(runs.c.started_at < cutoff, ~in_use)).scalars())

    def forget_runs(self, ids: list[str]) -> None:
        """Remove runs."""
        with self._writing() as db:
            for start in range(0, len(ids), _PAGE):
                db.execute(delete(runs).where(runs.c.id.in_(ids[start : start + _PAGE])))
