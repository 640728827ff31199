"""What a person does with the queue: look at records, put them in again, give them up."""

import json
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import RowMapping, Select, bindparam, or_, select, update

from gristmill.faults import Fault, FaultCode
from gristmill.store.database import Database
from gristmill.store.life import QueueRow, RecordState
from gristmill.store.queue import mark_changed
from gristmill.store.tables import files, records

_PAGE = 1000
_MENDABLE = (FaultCode.TOO_LONG, FaultCode.MISSING_FIELD, FaultCode.DROPPED)
"""Permanent faults that another model, another prompt or a change of mind can cure."""


class Desk(Database):
    """Records in the store, as people handle them."""

    def rows(
        self,
        states: Sequence[RecordState],
        *,
        schema: str | None = None,
        fault: FaultCode | None = None,
        record_id: str | None = None,
        limit: int | None = None,
    ) -> list[QueueRow]:
        """Records as `gristmill queue` lists them, the next due first."""
        query = self._selected(states, schema, fault, record_id).order_by(records.c.due_at, records.c.id)
        with self._reading() as db:
            found = db.execute(query.limit(limit)).mappings().all()
        return [
            QueueRow(
                row["id"],
                row["record_id"],
                row["schema"],
                row["output_name"],
                row["line"],
                RecordState(row["state"]),
                row["attempts"],
                row["preset"],
                row["due_at"],
                Fault.from_json(json.loads(row["fault"])) if row["fault"] else None,
            )
            for row in found
        ]

    def raw(self, pk: int) -> bytes:
        """The input line of a record."""
        with self._reading() as db:
            return bytes(db.execute(select(records.c.raw).where(records.c.id == pk)).scalar_one())

    def requeue(
        self, run_id: str, *, schema: str | None = None, fault: FaultCode | None = None, record_id: str | None = None
    ) -> int:
        """Make queued and dead records due now with a fresh set of attempts; how many records that were.

        Unreadable lines stay dead: no attempt could be made of them.
        """
        unreadable = [code for code in FaultCode if code.permanent and code not in _MENDABLE]
        chosen = self._selected([RecordState.QUEUED, RecordState.DEAD], schema, fault, record_id)
        chosen = chosen.where(or_(records.c.fault_code.is_(None), records.c.fault_code.not_in(unreadable)))
        return self._move(chosen, run_id, RecordState.QUEUED, None)

    def drop(
        self, run_id: str, *, schema: str | None = None, fault: FaultCode | None = None, record_id: str | None = None
    ) -> int:
        """Make queued records dead by hand; how many records that were. They stay in the dead file."""
        gone = Fault(FaultCode.DROPPED, "dropped from the queue by hand")
        return self._move(
            self._selected([RecordState.QUEUED], schema, fault, record_id), run_id, RecordState.DEAD, gone
        )

    def _move(self, chosen: Select[Any], run_id: str, state: RecordState, fault: Fault | None) -> int:
        now, moved, last = time.time(), 0, 0
        while True:
            # In pages, so that no transaction keeps others waiting.
            page = chosen.where(records.c.id > last).order_by(records.c.id).limit(_PAGE)
            with self._writing() as db:
                rows = db.execute(page.with_for_update(of=[records, files])).mappings().all()
                if not rows:
                    return moved
                changes = [_moved(row, run_id, state, fault, now) for row in rows]
                columns: dict[str, Any] = {key: bindparam(f"new_{key}") for key in changes[0] if key != "pk"}
                renamed = [{k if k == "pk" else f"new_{k}": v for k, v in change.items()} for change in changes]
                db.execute(update(records).where(records.c.id == bindparam("pk")).values(**columns), renamed)
                mark_changed(db, [row["id"] for row in rows])
            moved, last = moved + len(rows), rows[-1]["id"]

    def _selected(
        self, states: Sequence[RecordState], schema: str | None, fault: FaultCode | None, record_id: str | None
    ) -> Select[Any]:
        query = (
            select(records.c.id, records.c.record_id, records.c.line, records.c.state, records.c.attempts)
            .add_columns(records.c.preset, records.c.due_at, records.c.fault)
            .add_columns(files.c.schema, files.c.output_name, files.c.preset.label("first_preset"))
            .join(files, files.c.id == records.c.file_id)
            .where(records.c.state.in_(states), files.c.complete == 1, files.c.pruned_at.is_(None))
        )
        if schema is not None:
            query = query.where(files.c.schema == schema)
        if fault is not None:
            query = query.where(records.c.fault_code == fault.value)
        if record_id is not None:
            query = query.where(records.c.record_id == record_id)
        return query


def _moved(row: RowMapping, run_id: str, state: RecordState, fault: Fault | None, now: float) -> dict[str, Any]:
    values: dict[str, Any] = {"pk": row["id"], "state": state.value, "run_id": run_id, "due_at": now}
    if fault is not None:
        return values | {"fault_code": fault.code.value, "fault": json.dumps(fault.as_json()), "ended_at": now}
    first = row["first_preset"]
    # A budget that was raised, or that a batch line asked for, stays.
    again = {"preset": first, "ended_at": None}
    return values | again | {"attempts_before_requeue": row["attempts"]}
