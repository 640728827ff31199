"""Forgetting what ended long ago. A file's row stays: its content is known for ever, and its name is taken."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, delete, func, select, update

from gristmill.store import owner as owners
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
    version: int


class Retention(Database):
    """What of the store is old, and its removal."""

    def ended_before(self, cutoff: float) -> list[Old]:
        """Files that are finished, written out, and have not changed since `cutoff` (seconds since 1970)."""
        count = select(func.count()).where(records.c.file_id == files.c.id).scalar_subquery().label("records")
        query = select(files, count).where(_is_old(cutoff))
        with self._reading() as db:
            rows = db.execute(query.order_by(files.c.id)).mappings().all()
            kept = select(files.c.archived).where(files.c.archived != "[]", ~_is_old(cutoff))
            # Two files of one content have one copy there; it goes with the last of them.
            needed = {place for archived in db.execute(kept).scalars() for place in json.loads(archived)}
        # One that was pruned before has nothing left, unless that was broken off.
        return [
            Old(
                file_row(row),
                tuple(place for place in json.loads(row["archived"]) if place not in needed),
                row["records"],
                row["version"],
            )
            for row in rows
            if row["pruned_at"] is None or row["records"] or row["archived"] != "[]"
        ]

    def forget(self, old: Old, cutoff: float, remove_files: Callable[[], None]) -> bool:
        """Remove a file's records and attempts, in pages, after `remove_files` has removed what lies on disk.

        False, and nothing done, where the file has changed since it was found old: somebody put a record in again.
        """
        with self._writing() as db:
            row = select(files.c.version, files.c.pruned_at).where(files.c.id == old.file.id, _is_old(cutoff))
            # From here on nobody requeues one of its records or writes its outputs.
            found = db.execute(row.with_for_update()).one_or_none()
            if found is None or found.version != old.version:
                return False
            gone = {"pruned_at": func.coalesce(files.c.pruned_at, time.time())}
            db.execute(update(files).where(files.c.id == old.file.id).values(**gone))
        remove_files()
        while True:
            with self._writing() as db:
                page = select(records.c.id).where(records.c.file_id == old.file.id).limit(_PAGE)
                ids = db.execute(page).scalars().all()
                db.execute(delete(attempts).where(attempts.c.record_pk.in_(ids)))
                db.execute(delete(records).where(records.c.id.in_(ids)))
                if len(ids) < _PAGE:
                    db.execute(update(files).where(files.c.id == old.file.id).values(archived="[]"))
                    return True

    def runs_before(self, cutoff: float) -> list[str]:
        """Runs that began before `cutoff`, are at an end, and to which nothing refers any more."""
        in_use = (
            select(records.c.id).where(records.c.run_id == runs.c.id).exists()
            | select(attempts.c.id).where(attempts.c.run_id == runs.c.id).exists()
            | select(leases.c.id).where(leases.c.run_id == runs.c.id).exists()
            | select(files.c.id).where(files.c.run_id == runs.c.id).exists()
        )
        query = select(runs.c.id, runs.c.owner, runs.c.ended_at).where(runs.c.started_at < cutoff, ~in_use)
        with self._reading() as db:
            return [row.id for row in db.execute(query) if row.ended_at is not None or not owners.lives(row.owner)]

    def forget_runs(self, ids: list[str]) -> None:
        """Remove runs."""
        with self._writing() as db:
            for start in range(0, len(ids), _PAGE):
                db.execute(delete(runs).where(runs.c.id.in_(ids[start : start + _PAGE])))


def _is_old(cutoff: float) -> ColumnElement[bool]:
    unfinished = select(records.c.id).where(records.c.file_id == files.c.id, records.c.state.in_(UNFINISHED))
    written = (files.c.written_version >= files.c.version) | files.c.pruned_at.is_not(None)
    return (files.c.complete == 1) & (files.c.changed_at < cutoff) & written & ~unfinished.exists()
