"""What outbox and dead files show: the end of every record of a file, read as of one moment."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select, update

from gristmill.faults import Fault
from gristmill.store.database import Database
from gristmill.store.ledger import FileRow, file_row
from gristmill.store.life import RecordState
from gristmill.store.tables import attempts, files, records

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Ends:
    """A file's records as of one moment. `version` grows whenever one of them ends or is moved by hand; `written`
    says whether outputs show it."""

    version: int
    lines: int
    written: bool
    pruned: bool
    states: Mapping[RecordState, int]
    _db: Connection
    _file_id: int

    @property
    def complete(self) -> bool:
        """Whether every record is accepted or dead."""
        return self.states.keys() <= {RecordState.ACCEPTED, RecordState.DEAD} and not self.pruned

    def accepted(self) -> Iterator[Mapping[Any, Any]]:
        """One mapping per accepted record, in input order; `output` and `beside` are JSON text."""
        query = (
            select(records.c.record_id, records.c.line, records.c.form, records.c.output, records.c.attempts)
            .add_columns(records.c.beside)
            .add_columns(records.c.ended_at, attempts.c.model, attempts.c.preset, attempts.c.finish_reason)
            .add_columns(attempts.c.prompt_tokens, attempts.c.completion_tokens)
            .join(attempts, (attempts.c.record_pk == records.c.id) & (attempts.c.number == records.c.attempts))
            .where(records.c.file_id == self._file_id, records.c.state == RecordState.ACCEPTED)
            .order_by(records.c.line)
        )
        yield from self._db.execute(query, execution_options={"yield_per": _PAGE}).mappings()

    def dead(self) -> Iterator[tuple[int, bytes, Fault]]:
        """Line number, bytes and fault of the dead records, in input order."""
        query = (
            select(records.c.line, records.c.raw, records.c.fault)
            .where(records.c.file_id == self._file_id, records.c.state == RecordState.DEAD)
            .order_by(records.c.line)
        )
        for line, raw, fault in self._db.execute(query, execution_options={"yield_per": 20}):
            yield line, bytes(raw), Fault.from_json(json.loads(fault))


class Outputs(Database):
    """The ends of files' records in the store, and how far they have been written out."""

    def behind(self) -> list[FileRow]:
        """Files some of whose records ended after their outputs were written last, and that no run has in hand."""
        in_hand = select(records.c.id).where(records.c.file_id == files.c.id, records.c.lease.is_not(None))
        unwritten = files.c.written_version < files.c.version
        query = select(files).where(files.c.complete == 1, files.c.pruned_at.is_(None), unwritten, ~in_hand.exists())
        with self._reading() as db:
            return [file_row(row) for row in db.execute(query.order_by(files.c.id)).mappings()]

    @contextmanager
    def ends(self, file_id: int) -> Iterator[Ends]:
        """A file's records as they are now, for as long as the context lasts."""
        with self._reading() as db:
            columns = select(files.c.version, files.c.written_version, files.c.lines, files.c.pruned_at)
            version, written, lines, pruned_at = db.execute(columns.where(files.c.id == file_id)).one()
            counts = select(records.c.state, func.count()).where(records.c.file_id == file_id)
            states = {RecordState(state): n for state, n in db.execute(counts.group_by(records.c.state))}
            yield Ends(version, lines, written >= version, pruned_at is not None, states, db, file_id)

    def publish(self, file_id: int, version: int, show: Callable[[], None]) -> bool:
        """Call `show`, which puts outputs made from `version` in their places, unless newer ones stand there or the
        file was pruned meanwhile.

        Of several processes only one at a time does so for a file; the rest wait for it here.
        """
        with self._writing() as db:
            columns = select(files.c.written_version, files.c.pruned_at)
            written, pruned_at = db.execute(columns.where(files.c.id == file_id).with_for_update()).one()
            if written > version or pruned_at is not None:
                return False
            show()
            db.execute(update(files).where(files.c.id == file_id).values(written_version=version))
            return True
