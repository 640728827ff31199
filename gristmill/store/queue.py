"""A record's life: waiting, leased, then accepted, queued for another attempt, or dead.

Whatever a run does to records that it holds names its lease, and is done only if that still stands: a run that slept
through its lease until another took over changes nothing any more.
"""

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from gristmill.engine.base import Candidate, Failed, Outcome, Request
from gristmill.faults import Fault, FaultCode
from gristmill.policy import Again, Attempt, Dead
from gristmill.store import owner as owners
from gristmill.store.database import Database, in_pages, in_pages_of_bytes
from gristmill.store.life import ACCEPTED, Claim, Failing, Held, RecordState, Settled, Unjudged, Verdict
from gristmill.store.tables import AT_WORK, attempts, files, leases, records

_SUSPECT = (FaultCode.INTERRUPTED.value, FaultCode.ENGINE_ERROR.value)
_UNDER_WAY = records.c.attempts > records.c.settled
_LAST = (attempts.c.record_pk == records.c.id) & (attempts.c.number == records.c.attempts)


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
        fresh = or_(records.c.state != RecordState.QUEUED, records.c.run_id != run_id)
        query = (
            select(records.c.id)
            .join(files, files.c.id == records.c.file_id)
            .where(
                AT_WORK,
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
            _lease(db, ids, lease, run_id, lease_seconds)
        return Claim(lease, len(ids))

    def due(self, state: RecordState, due_by: float) -> int:
        """How many records in a state are due by a time (seconds since 1970)."""
        count = select(func.count()).select_from(records).where(AT_WORK, records.c.state == state)
        with self._reading() as db:
            return int(db.execute(count.where(records.c.due_at <= due_by)).scalar_one())

    def recover(self, run_id: str, *, lease_seconds: float) -> Claim:
        """Take over what other runs let go of, by dying or by sleeping through their lease, and what processes of
        this run held that died.

        Records that were never started go back to where they were. Those with an attempt under way come under the
        returned lease, an attempt without a candidate judged `interrupted`, so that checking and routing them
        finishes what the other run began.
        """
        now = time.time()
        lease = uuid.uuid4().hex
        with self._writing(alone=True) as db:
            # A holder that is in the middle of a transaction is waited for here.
            held = db.execute(select(leases).order_by(leases.c.id).with_for_update()).all()
            lapsed = {row.id for row in held if row.run_id != run_id and row.until < now}
            lost = [row.id for row in held if row.id in lapsed or not owners.lives(row.owner)]
            started = db.execute(select(records.c.id).where(records.c.lease.in_(lost), _UNDER_WAY)).scalars().all()
            _lease(db, started, lease, run_id, lease_seconds)
            _give_back(db, records.c.lease.in_(lost))
            db.execute(delete(leases).where(leases.c.id.in_(lost)))
            silent = select(attempts.c.id).join(records, _LAST)
            silent = silent.where(
                records.c.lease == lease, attempts.c.verdict.is_(None), attempts.c.candidate.is_(None)
            )
            fault = Fault(FaultCode.INTERRUPTED, "the process died while this record was being generated")
            said = {"verdict": fault.code.value, "fault": json.dumps(fault.as_json()), "ended_at": now}
            db.execute(update(attempts).where(attempts.c.id.in_(silent)).values(**said))
        return Claim(lease, len(started))

    def renew(self, lease: str, lease_seconds: float) -> None:
        """Keep a lease for another `lease_seconds` from now."""
        with self._writing() as db:
            # One that was let go of stays so.
            held = (leases.c.id == lease) & (leases.c.until > 0)
            db.execute(update(leases).where(held).values(until=time.time() + lease_seconds))

    def give_back(self, lease: str) -> int:
        """Let go of everything under a lease; how many records went back to where they were.

        Attempts without an outcome are taken back uncounted: we broke them off ourselves. Records with a candidate
        that nobody has judged stay leased, but any other run may take them over at once.
        """
        mine = records.c.lease == lease
        silent = select(records.c.id).join(attempts, _LAST).where(mine, _UNDER_WAY, attempts.c.candidate.is_(None))
        with self._writing() as db:
            if not _stands(db, lease):
                return 0
            broken_off = db.execute(silent.where(attempts.c.verdict.is_(None))).scalars().all()
            for page in in_pages(broken_off):
                these = records.c.id.in_(page)
                number = select(records.c.attempts).where(records.c.id == attempts.c.record_pk).scalar_subquery()
                db.execute(delete(attempts).where(attempts.c.record_pk.in_(page), attempts.c.number == number))
                db.execute(update(records).where(these).values(attempts=records.c.attempts - 1))
            count = _give_back(db, mine & ~_UNDER_WAY)
            if db.execute(select(records.c.id).where(mine).limit(1)).first() is None:
                db.execute(delete(leases).where(leases.c.id == lease))
            else:
                db.execute(update(leases).where(leases.c.id == lease).values(until=0.0))
        return count

    def to_generate(self, lease: str, *, suspect: bool) -> Iterator[Held]:
        """Leased records that have no attempt under way, oldest first.

        `suspect` chooses between those whose last attempt ended with the process or broke the engine, and the others.
        """
        suspected = func.coalesce(records.c.fault_code, "").in_(_SUSPECT)
        chosen = suspected if suspect else ~suspected
        columns = (records.c.id, records.c.record_id, records.c.raw, files.c.schema, records.c.preset)
        tried = attempts.alias()
        # The last refused answer since a requeue, whatever became of attempts that ended with their process since.
        refused = select(func.max(tried.c.number)).where(
            tried.c.record_pk == records.c.id,
            tried.c.number > records.c.attempts_before_requeue,
            tried.c.candidate.is_not(None),
            tried.c.fault.is_not(None),
        )
        last_refused = (attempts.c.record_pk == records.c.id) & (
            attempts.c.number == refused.correlate(records).scalar_subquery()
        )
        query = select(*columns, records.c.max_new_tokens, records.c.attempts + 1)
        last = (attempts.c.candidate, attempts.c.fault, func.coalesce(attempts.c.repair, 0) == 1)
        query = query.select_from(records).add_columns(*last).outerjoin(attempts, last_refused)
        for row in self._leased(lease, ~_UNDER_WAY & chosen, query):
            yield Held(*row)

    def start_attempts(self, lease: str, run_id: str, requests: Sequence[Request], model: str) -> None:
        """Count attempts before they are made, so that a record that kills the process can't do so for ever.

        Once another run has taken the lease's records over, nothing is done, here and below.
        """
        with self._writing() as db:
            if _stands(db, lease):
                _start(db, run_id, requests, model)

    def save_outcomes(
        self, lease: str, run_id: str, made: Sequence[tuple[Request, Outcome, float]], model: str
    ) -> None:
        """Keep what the engine returned, and when (seconds since 1970).

        Requests that were refused before they started count as attempts too.
        """
        with self._writing() as db:
            if not made or not _stands(db, lease):
                return
            # One that was refused before it started has no attempt yet.
            refused = {request.key: request for request, outcome, _ in made if isinstance(outcome, Failed)}
            begun = select(records.c.id).where(records.c.id.in_(refused), _UNDER_WAY)
            for pk in db.execute(begun).scalars().all() if refused else ():
                del refused[pk]
            _start(db, run_id, list(refused.values()), model)
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

    def unjudged(self, lease: str) -> Iterator[Unjudged]:
        """Candidates under a lease that nobody has judged yet."""
        of_last = (attempts.c.verdict.is_(None), attempts.c.candidate.is_not(None))
        waiting = select(attempts.c.id).where(_LAST, *of_last).correlate(records).exists()
        columns = (records.c.id, records.c.attempts, files.c.schema)
        query = select(*columns, attempts.c.candidate, attempts.c.finish_reason).join(attempts, _LAST)
        for row in self._leased(lease, _UNDER_WAY & waiting, query):
            yield Unjudged(*row)

    def save_verdicts(self, lease: str, verdicts: Sequence[Verdict]) -> None:
        """Keep what was found of candidates; a record whose candidate was accepted is done and released."""
        now = time.time()
        with self._writing() as db:
            if not verdicts or not _stands(db, lease):
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
            accepted = [
                {"pk": v.pk, "text": v.output, "and": json.dumps(v.beside, ensure_ascii=False)}
                for v in verdicts
                if v.fault is None
            ]
            if accepted:
                done = {"state": RecordState.ACCEPTED.value, "settled": records.c.attempts, "ended_at": now}
                no_fault = {"fault": None, "fault_code": None}
                statement = update(records).where(records.c.id == bindparam("pk"))
                told: dict[str, Any] = {"output": bindparam("text"), "beside": bindparam("and")}
                db.execute(statement.values(**told, **done, **no_fault, lease=None), accepted)
                mark_changed(db, [v.pk for v in verdicts if v.fault is None])

    def failing(self, lease: str) -> list[Failing]:
        """Records under a lease whose last attempt has a fault for a verdict, with all since the last requeue."""
        last = select(records.c.id).join(attempts, _LAST)
        last = last.where(records.c.lease == lease, _UNDER_WAY, attempts.c.verdict.is_not(None))
        query = (
            select(records.c.id, attempts.c.verdict, attempts.c.preset, attempts.c.max_new_tokens)
            .join(attempts, attempts.c.record_pk == records.c.id)
            .where(records.c.id.in_(last), attempts.c.number > records.c.attempts_before_requeue)
            .order_by(records.c.id, attempts.c.number)
        )
        tried: dict[int, list[Attempt]] = defaultdict(list)
        with self._reading() as db:
            for pk, verdict, preset, budget in db.execute(query):
                tried[pk].append(Attempt(preset, budget, FaultCode(verdict)))
        return [Failing(pk, tuple(history)) for pk, history in tried.items()]

    def settle(self, lease: str, settled: Sequence[Settled]) -> None:
        """Move failing records to where the policy sends them, and release them."""
        now = time.time()
        last_fault = select(attempts.c.fault).where(_LAST).correlate(records).scalar_subquery()
        last_verdict = select(attempts.c.verdict).where(_LAST).correlate(records).scalar_subquery()
        statement = (
            update(records)
            .where(records.c.id == bindparam("pk"))
            .values(
                state=bindparam("goes_to"),
                preset=func.coalesce(bindparam("by"), records.c.preset),
                max_new_tokens=func.coalesce(bindparam("budget"), records.c.max_new_tokens),
                due_at=bindparam("due"),
                ended_at=bindparam("ended"),
                settled=records.c.attempts,
                fault=last_fault,
                fault_code=last_verdict,
                lease=None,
            )
        )
        with self._writing() as db:
            if settled and _stands(db, lease):
                db.execute(statement, [_settled_row(s, now) for s in settled])
                mark_changed(db, [s.pk for s in settled])

    def _leased(self, lease: str, which: ColumnElement[bool], query: Select[Any]) -> Iterator[Sequence[Any]]:
        """What a query finds of records under a lease, read in pages that fit in memory whatever their lines hold."""
        sizes = select(records.c.id, func.length(records.c.raw)).where(records.c.lease == lease, which)
        with self._reading() as db:
            found = [(pk, size) for pk, size in db.execute(sizes.order_by(records.c.id))]
        for page in in_pages_of_bytes(found):
            these = query.join(files, files.c.id == records.c.file_id).where(records.c.id.in_(page))
            with self._reading() as db:
                rows = db.execute(these.where(records.c.lease == lease).order_by(records.c.id)).all()
            yield from rows


def mark_changed(db: Connection, pks: Sequence[int]) -> None:
    """Note that the outputs of these records' files are behind."""
    changed: set[int] = set()
    for page in in_pages(pks):
        of_these = select(records.c.file_id).where(records.c.id.in_(page)).distinct()
        changed |= set(db.execute(of_these).scalars())
    for file_id in sorted(changed):
        new = {"version": files.c.version + 1, "changed_at": time.time()}
        db.execute(update(files).where(files.c.id == file_id).values(**new))


def _stands(db: Connection, lease: str) -> bool:
    """Whether nobody has taken the lease away; nobody will until the transaction ends."""
    return db.execute(select(leases.c.id).where(leases.c.id == lease).with_for_update()).first() is not None


def _start(db: Connection, run_id: str, requests: Sequence[Request], model: str) -> None:
    now = time.time()
    rows = [
        {
            "record_pk": r.key,
            "number": r.attempt,
            "run_id": run_id,
            "preset": r.preset.name,
            "max_new_tokens": r.max_new_tokens,
            "model": model[:200],
            "started_at": now,
            "prompt_tokens": 0,
            "completion_tokens": 0,
            "repair": int(r.repair is not None),
        }
        for r in requests
    ]
    if rows:
        db.execute(insert(attempts), rows)
        for page in in_pages([r.key for r in requests]):
            db.execute(update(records).where(records.c.id.in_(page)).values(attempts=records.c.attempts + 1))


def _lease(db: Connection, ids: Sequence[int], lease: str, run_id: str, seconds: float) -> None:
    if not ids:
        return
    row = {"id": lease, "run_id": run_id, "owner": owners.owner(), "until": time.time() + seconds}
    db.execute(insert(leases).values(**row))
    held = {"state": RecordState.LEASED.value, "lease": lease, "run_id": run_id}
    for page in in_pages(ids):
        db.execute(update(records).where(records.c.id.in_(page)).values(**held))


def _give_back(db: Connection, which: ColumnElement[bool]) -> int:
    tried = case((records.c.attempts > 0, RecordState.QUEUED.value), else_=RecordState.WAITING.value)
    return db.execute(update(records).where(which).values(state=tried, lease=None)).rowcount


def _outcome_row(request: Request, outcome: Outcome) -> dict[str, Any]:
    row: dict[str, Any] = {"pk": request.key, "n": request.attempt}
    match outcome:
        case Candidate() if "\x00" in outcome.text:
            # PostgreSQL has no NUL in a text; JSON and XML have none either.
            nul = Fault(FaultCode.INVALID_JSON, "the answer holds a NUL character")
            return _outcome_row(request, Failed(outcome.key, nul))
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
        case Dead():
            return row | {"goes_to": RecordState.DEAD.value}
        case Again(preset, budget, wait):
            later = {"by": preset, "budget": budget, "due": now + wait, "ended": None}
            return row | later | {"goes_to": RecordState.QUEUED.value}
