"""What a report counts, counted by the database, so that a night of a million records needs no memory for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import LargeBinary, Select, func, literal, select

from gristmill.store.database import Database
from gristmill.store.life import ACCEPTED, RecordState
from gristmill.store.tables import attempts, files, records

_PAGE = 500


class Figures(Database):
    """Counts over the records and attempts of one run."""

    def states(self, run_id: str) -> Iterator[tuple[str, RecordState, int]]:
        """Schema, state, and how many records of the run are there."""
        query = _of_run(run_id, select(files.c.schema, records.c.state, func.count()))
        for schema, state, count in self._rows(query.group_by(files.c.schema, records.c.state)):
            yield schema, RecordState(state), count

    def states_of_file(self, file_id: int) -> dict[RecordState, int]:
        """How many of a file's records are in each state."""
        query = select(records.c.state, func.count()).where(records.c.file_id == file_id).group_by(records.c.state)
        return {RecordState(state): count for state, count in self._rows(query)}

    def unreadable(self, run_id: str) -> dict[str, int]:
        """Faults of records that were dead before any attempt, and how many."""
        query = _of_run(run_id, select(records.c.fault_code, func.count()))
        query = query.where(records.c.attempts == 0, records.c.fault_code.is_not(None))
        return dict(self._rows(query.group_by(records.c.fault_code)))

    def with_gold(self, run_id: str) -> Iterator[Mapping[str, Any]]:
        """Schema, input line, state and output of each record that ended or failed and may carry gold, in input order.

        The word alone is looked for, so that the other lines need not leave the database.
        """
        word = literal(b"gold", LargeBinary)
        on_sqlite = self._engine.dialect.name == "sqlite"
        place = func.instr(records.c.raw, word) if on_sqlite else func.position(word.op("IN")(records.c.raw))
        columns = (records.c.raw, records.c.record_id, records.c.state, records.c.output, files.c.schema)
        tried = records.c.state.in_([RecordState.ACCEPTED, RecordState.QUEUED, RecordState.DEAD])
        query = _of_run(run_id, select(*columns)).where(tried, place > 0).order_by(records.c.id)
        yield from self._mappings(query, page=20)

    def failures(self, run_id: str, alike: int, limit: int) -> list[Mapping[str, Any]]:
        """Records of the run without an accepted output: the first `alike` of each schema and fault, `limit` in all."""
        last = (attempts.c.record_pk == records.c.id) & (attempts.c.number == records.c.attempts)
        columns = (records.c.id, records.c.raw, records.c.record_id, records.c.state, records.c.fault, records.c.line)
        place = func.row_number().over(partition_by=[files.c.schema, records.c.fault_code], order_by=records.c.id)
        query = _of_run(run_id, select(*columns, files.c.schema, files.c.output_name, place.label("place")))
        faulty = query.where(records.c.fault.is_not(None), records.c.state != RecordState.ACCEPTED).subquery()
        of_last = select(attempts.c.candidate).where(last, records.c.id == faulty.c.id).scalar_subquery()
        shown = select(faulty, of_last.label("candidate")).where(faulty.c.place <= alike)
        with self._reading() as db:
            return [dict(row) for row in db.execute(shown.order_by(faulty.c.id).limit(limit)).mappings()]

    def attempts(self, run_id: str) -> Iterator[Mapping[str, Any]]:
        """By schema and verdict: attempts, first attempts and repairs among them, and tokens."""
        first = func.count().filter(attempts.c.number == 1).label("first")
        repairs = func.count().filter(attempts.c.repair == 1).label("repairs")
        asked = func.sum(attempts.c.prompt_tokens).label("prompt_tokens")
        written = func.sum(attempts.c.completion_tokens).label("completion_tokens")
        by = (files.c.schema, attempts.c.verdict)
        query = _attempts_of(run_id, select(*by, func.count().label("count"), first, repairs, asked, written))
        yield from self._mappings(query.group_by(*by))

    def answer_lengths(self, run_id: str) -> dict[int, int]:
        """How many answers of the run have which length in tokens."""
        query = select(attempts.c.completion_tokens, func.count()).where(attempts.c.run_id == run_id)
        query = query.where(attempts.c.completion_tokens > 0)
        return dict(self._rows(query.group_by(attempts.c.completion_tokens)))

    def spans(self, run_id: str) -> Iterator[tuple[str, float, float]]:
        """Schema, and from when to when records that began together were in the model, in the order of beginning."""
        by = (files.c.schema, attempts.c.started_at)
        query = _attempts_of(run_id, select(*by, func.max(attempts.c.ended_at))).where(attempts.c.ended_at.is_not(None))
        yield from self._rows(query.group_by(*by).order_by(attempts.c.started_at))

    def faults(self, run_id: str) -> Iterator[tuple[str, str]]:
        """Schema and fault, as JSON, of every attempt that failed."""
        query = _attempts_of(run_id, select(files.c.schema, attempts.c.fault))
        failed = query.where(attempts.c.fault.is_not(None), attempts.c.verdict != ACCEPTED)
        yield from self._rows(failed.order_by(attempts.c.id))

    def _rows(self, query: Select[Any]) -> Iterator[Any]:
        with self._reading() as db:
            yield from db.execute(query, execution_options={"yield_per": _PAGE})

    def _mappings(self, query: Select[Any], page: int = _PAGE) -> Iterator[Mapping[Any, Any]]:
        with self._reading() as db:
            yield from db.execute(query, execution_options={"yield_per": page}).mappings()


def _of_run(run_id: str, query: Select[Any]) -> Select[Any]:
    joined = query.select_from(records).join(files, files.c.id == records.c.file_id)
    return joined.where(records.c.run_id == run_id, files.c.complete == 1)


def _attempts_of(run_id: str, query: Select[Any]) -> Select[Any]:
    joined = query.select_from(attempts).join(records, records.c.id == attempts.c.record_pk)
    return joined.join(files, files.c.id == records.c.file_id).where(attempts.c.run_id == run_id)
