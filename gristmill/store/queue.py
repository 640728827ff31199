"""A record's life: waiting, leased, then accepted, queued for another attempt, or dead."""

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, bindparam, case, delete, func, insert, or_, select, update

from gristmill.engine.base import Candidate, Failed, Outcome, Request
from gristmill.faults import Fault, FaultCode
from gristmill.policy import Again, Attempt, Dead
from gristmill.store import owner as owners
from gristmill.store.database import Database
from gristmill.store.desk import mark_changed
from gristmill.store.life import ACCEPTED, Claim, Held, Judged, RecordState, Settled, Unjudged, Verdict
from gristmill.store.tables import attempts, files, records


class Queue(Database):
    """Records in the store."""

    def claim(
        self,
        run_id: str,
        states: Sequence[RecordState],
        limit: int,
        *,
        lease_seconds: float,
        schemas: Sequence[str],
        file_ids: Sequence[int] | None = None,
        due_by: float,
    ) -> Claim:
        """Lease up to `limit` records in `states`, the longest due first; no other run can claim them until
        `lease_seconds` have passed. Records due after `due_by` (seconds since 1970) stay, and so do queued ones that
        this run has tried already."""
        now = time.time()
        fresh = or_(records.c.state != RecordState.QUEUED, records.c.run_id != run_id)
        query = (
            select(records.c.id)
            .join(files, files.c.id == records.c.file_id)
            .where(
                records.c.state.in_(states),
                records.c.due_at <= due_by,
                fresh,
                files.c.complete == 1,
                files.c.schema.in_(schemas),
            )
            .order_by(records.c.due_at, records.c.id)
            .limit(limit)
            .with_for_update(skip_locked=True, of=records)
        )
        if file_ids is not None:
            query = query.where(records.c.file_id.in_(file_ids))
        lease = uuid.uuid4().hex
        with self._writing() as db:
            ids = db.execute(query).scalars().all()
            self._lease(db, ids, lease, run_id, now + lease_seconds)
        return Claim(lease, len(ids))

    def recover(self, run_id: str, *, lease_seconds: float) -> Claim:
        """Take over what dead runs had in hand.

        Records that were never started go back to where they were. Those with an attempt under way come under the
        returned lease, an attempt without a candidate judged `interrupted`, so that checking and routing them
        finishes what the dead run began.
        """
        now = time.time()
        leased = records.c.state == RecordState.LEASED
        with self._writing() as db:
            holders = db.execute(select(records.c.leased_by).where(leased).distinct()).scalars().all()
            gone = [name for name in holders if not owners.lives(name)]
            lost = leased & or_(records.c.leased_until < now, records.c.leased_by.in_(gone))
            started = db.execute(select(records.c.id).where(lost, _under_way().exists())).scalars().all()
            lease = uuid.uuid4().hex
            self._lease(db, started, lease, run_id, now + lease_seconds)
            self._give_back(db, lost & (records.c.lease != lease))
            silent = (
                update(attempts)
                .where(attempts.c.verdict.is_(None), attempts.c.candidate.is_(None))
                .where(attempts.c.record_pk.in_(select(records.c.id).where(records.c.lease == lease)))
            )
            fault = Fault(FaultCode.INTERRUPTED, "the process died while this record was being generated")
            said = {"verdict": fault.code.value, "fault": json.dumps(fault.as_json()), "ended_at": now}
            db.execute(silent.values(**said))
        return Claim(lease, len(started))

    def renew(self, lease: str, lease_seconds: float) -> None:
        """Keep a lease for another `lease_seconds` from now."""
        with self._writing() as db:
            until = time.time() + lease_seconds
            db.execute(update(records).where(records.c.lease == lease).values(leased_until=until))

    def give_back(self, lease: str) -> int:
        """Return what has no candidate yet to where it was before; how many records that were."""
        silent = _under_way().where(attempts.c.candidate.is_(None), attempts.c.verdict.is_(None))
        mine = records.c.lease == lease
        with self._writing() as db:
            # An attempt that we broke off ourselves is none: it was not the record's fault.
            broken_off = db.execute(select(records.c.id, records.c.attempts).where(mine, silent.exists()))
            for pk, number in broken_off.all():
                db.execute(delete(attempts).where(attempts.c.record_pk == pk, attempts.c.number == number))
                db.execute(update(records).where(records.c.id == pk).values(attempts=number - 1))
            return self._give_back(db, mine & ~_under_way().exists())

    def to_generate(self, lease: str, page: int = 256) -> Iterator[Held]:
        """Leased records that have no attempt under way, oldest first, read in pages."""
        last = 0
        while True:
            query = (
                select(records, files.c.schema)
                .join(files, files.c.id == records.c.file_id)
                .where(records.c.lease == lease, records.c.id > last, ~_under_way().exists())
                .order_by(records.c.id)
                .limit(page)
            )
            with self._reading() as db:
                rows = db.execute(query).mappings().all()
            for row in rows:
                yield Held(
                    row["id"],
                    row["record_id"],
                    row["raw"],
                    row["schema"],
                    row["preset"],
                    row["max_new_tokens"],
                    row["attempts"] + 1,
                )
            if len(rows) < page:
                return
            last = rows[-1]["id"]

    def start_attempts(self, lease: str, run_id: str, requests: Sequence[Request], model: str) -> None:
        """Count attempts before they are made, so that a record that kills the process can't do so for ever.

        Records that the lease has lost, because it lapsed and another run took over, are left alone here and below.
        """
        with self._writing() as db:
            mine = self._still_mine(db, lease, [request.key for request in requests])
            self._start(db, run_id, [request for request in requests if request.key in mine], model)

    def save_outcomes(
        self, lease: str, run_id: str, made: Sequence[tuple[Request, Outcome, float]], model: str
    ) -> None:
        """Keep what the engine returned, and when (seconds since 1970).

        Requests that were refused before they started count as attempts too.
        """
        with self._writing() as db:
            mine = self._still_mine(db, lease, [request.key for request, _, _ in made])
            made = [one for one in made if one[0].key in mine]
            if not made:
                return
            keys = [request.key for request, _, _ in made]
            under_way = select(attempts.c.record_pk, attempts.c.number).where(attempts.c.record_pk.in_(keys))
            known = set(db.execute(under_way).all())
            self._start(db, run_id, [r for r, _, _ in made if (r.key, r.attempt) not in known], model)
            db.execute(
                update(attempts)
                .where(attempts.c.record_pk == bindparam("pk"), attempts.c.number == bindparam("n"))
                .values(
                    candidate=bindparam("text"),
                    finish_reason=bindparam("reason"),
                    prompt_tokens=bindparam("asked"),
                    completion_tokens=bindparam("written"),
                    verdict=bindparam("said"),
                    fault=bindparam("why"),
                    ended_at=bindparam("at"),
                ),
                [_outcome_row(request, outcome) | {"at": at} for request, outcome, at in made],
            )

    def unjudged(self, lease: str) -> list[Unjudged]:
        """Candidates under a lease that nobody has judged yet."""
        query = (
            select(records.c.id, attempts.c.number, records.c.raw, records.c.record_id, files.c.schema)
            .add_columns(attempts.c.candidate, attempts.c.finish_reason)
            .join(attempts, (attempts.c.record_pk == records.c.id) & (attempts.c.number == records.c.attempts))
            .join(files, files.c.id == records.c.file_id)
            .where(records.c.lease == lease, attempts.c.verdict.is_(None), attempts.c.candidate.is_not(None))
            .order_by(records.c.id)
        )
        with self._reading() as db:
            return [Unjudged(*row) for row in db.execute(query)]

    def save_verdicts(self, lease: str, verdicts: Sequence[Verdict]) -> None:
        """Keep what was found of candidates."""
        with self._writing() as db:
            mine = self._still_mine(db, lease, [v.pk for v in verdicts])
            verdicts = [v for v in verdicts if v.pk in mine]
            if not verdicts:
                return
            db.execute(
                update(attempts)
                .where(attempts.c.record_pk == bindparam("pk"), attempts.c.number == bindparam("n"))
                .values(verdict=bindparam("said"), fault=bindparam("why")),
                [
                    {
                        "pk": v.pk,
                        "n": v.attempt,
                        "said": v.fault.code.value if v.fault else ACCEPTED,
                        "why": json.dumps(v.fault.as_json(), ensure_ascii=False) if v.fault else None,
                    }
                    for v in verdicts
                ],
            )
            accepted = [{"pk": v.pk, "text": v.output} for v in verdicts if v.output is not None]
            if accepted:
                db.execute(
                    update(records).where(records.c.id == bindparam("pk")).values(output=bindparam("text")), accepted
                )

    def judged(self, lease: str) -> list[Judged]:
        """Records under a lease whose last attempt has a verdict, with the failed attempts since the last requeue."""
        last = (
            select(records.c.id)
            .join(attempts, (attempts.c.record_pk == records.c.id) & (attempts.c.number == records.c.attempts))
            .where(records.c.lease == lease, attempts.c.verdict.is_not(None), attempts.c.settled == 0)
        )
        query = (
            select(records.c.id, attempts.c.verdict, attempts.c.preset, attempts.c.max_new_tokens)
            .join(attempts, attempts.c.record_pk == records.c.id)
            .where(records.c.id.in_(last), attempts.c.number > records.c.attempts_before_requeue)
            .order_by(records.c.id, attempts.c.number)
        )
        tried: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
        with self._reading() as db:
            for pk, verdict, preset, budget in db.execute(query):
                tried[pk].append((verdict, preset, budget))
        return [
            Judged(
                pk,
                all_of[-1][0] == ACCEPTED,
                tuple(Attempt(preset, budget, FaultCode(said)) for said, preset, budget in all_of if said != ACCEPTED),
            )
            for pk, all_of in tried.items()
        ]

    def settle(self, lease: str, settled: Sequence[Settled]) -> None:
        """Move judged records to where they belong and release them."""
        now = time.time()
        last_fault = (
            select(attempts.c.fault)
            .where(attempts.c.record_pk == records.c.id, attempts.c.number == records.c.attempts)
            .scalar_subquery()
        )
        last_verdict = (
            select(attempts.c.verdict)
            .where(attempts.c.record_pk == records.c.id, attempts.c.number == records.c.attempts)
            .scalar_subquery()
        )
        statement = (
            update(records)
            .where(records.c.id == bindparam("pk"))
            .values(
                state=bindparam("goes_to"),
                preset=func.coalesce(bindparam("by"), records.c.preset),
                max_new_tokens=func.coalesce(bindparam("budget"), records.c.max_new_tokens),
                due_at=bindparam("due"),
                ended_at=bindparam("ended"),
                fault=last_fault,
                fault_code=case((last_verdict == ACCEPTED, None), else_=last_verdict),
                lease=None,
                leased_by=None,
                leased_until=None,
            )
        )
        with self._writing() as db:
            mine = self._still_mine(db, lease, [s.pk for s in settled])
            settled = [s for s in settled if s.pk in mine]
            if not settled:
                return
            db.execute(statement, [_settled_row(s, now) for s in settled])
            done = update(attempts).where(attempts.c.record_pk == bindparam("pk"), attempts.c.settled == 0)
            db.execute(done.values(settled=1), [{"pk": s.pk} for s in settled])
            mark_changed(db, [s.pk for s in settled])

    def _still_mine(self, db: Connection, lease: str, pks: Sequence[int]) -> set[int]:
        held = select(records.c.id).where(records.c.lease == lease)
        return set(pks) & set(db.execute(held).scalars())

    def _start(self, db: Connection, run_id: str, requests: Iterable[Request], model: str) -> None:
        rows = [
            {
                "record_pk": r.key,
                "number": r.attempt,
                "run_id": run_id,
                "preset": r.preset.name,
                "max_new_tokens": r.max_new_tokens,
                "model": model,
                "started_at": time.time(),
                "prompt_tokens": 0,
                "completion_tokens": 0,
                "settled": 0,
            }
            for r in requests
        ]
        if rows:
            db.execute(insert(attempts), rows)
            counted = update(records).where(records.c.id == bindparam("pk")).values(attempts=bindparam("n"))
            db.execute(counted, [{"pk": row["record_pk"], "n": row["number"]} for row in rows])

    def _lease(self, db: Connection, ids: Sequence[int], lease: str, run_id: str, until: float) -> None:
        values = {"state": RecordState.LEASED.value, "lease": lease, "leased_by": owners.owner(), "leased_until": until}
        statement = update(records).where(records.c.id == bindparam("pk")).values(**values, run_id=run_id)
        if ids:
            db.execute(statement, [{"pk": pk} for pk in ids])

    def _give_back(self, db: Connection, which: Any) -> int:
        tried = case((records.c.attempts > 0, RecordState.QUEUED.value), else_=RecordState.WAITING.value)
        free = {"lease": None, "leased_by": None, "leased_until": None}
        leased = records.c.state == RecordState.LEASED
        return db.execute(update(records).where(leased, which).values(state=tried, **free)).rowcount


def _under_way() -> Select[Any]:
    """The last attempt of the record of an enclosing query, where it was not settled."""
    last = (attempts.c.record_pk == records.c.id) & (attempts.c.number == records.c.attempts)
    return select(attempts.c.id).where(last, attempts.c.settled == 0)


def _outcome_row(request: Request, outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {"pk": request.key, "n": request.attempt}
    match outcome:
        case Candidate():
            return row | {
                "text": outcome.text,
                "reason": outcome.finish_reason.value,
                "asked": outcome.prompt_tokens,
                "written": outcome.completion_tokens,
                "said": None,
                "why": None,
            }
        case Failed():
            why = json.dumps(outcome.fault.as_json(), ensure_ascii=False)
            empty = {"text": None, "reason": None, "asked": 0, "written": 0}
            return row | empty | {"said": outcome.fault.code.value, "why": why}


def _settled_row(settled: Settled, now: float) -> Mapping[str, Any]:
    row: dict[str, Any] = {"pk": settled.pk, "by": None, "budget": None, "due": now, "ended": now}
    match settled.decision:
        case None:
            return row | {"goes_to": RecordState.ACCEPTED.value}
        case Dead():
            return row | {"goes_to": RecordState.DEAD.value}
        case Again(preset, budget, wait):
            later = {"by": preset, "budget": budget, "due": now + wait, "ended": None}
            return row | later | {"goes_to": RecordState.QUEUED.value}
