"""A record's life: waiting, leased, then accepted, queued for another attempt, or dead.

Whatever a run does to a record that it holds names the lease, and is done only if the record is still under it: a run
that slept through its lease changes nothing any more.
"""

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, case, delete, func, insert, or_, select, text, update

from gristmill.engine.base import Candidate, Failed, Outcome, Request
from gristmill.faults import Fault, FaultCode
from gristmill.policy import Again, Attempt, Dead
from gristmill.store import owner as owners
from gristmill.store.database import Database, in_pages, in_pages_of_bytes
from gristmill.store.life import ACCEPTED, Claim, Failing, Held, RecordState, Settled, Unjudged, Verdict
from gristmill.store.tables import attempts, files, records

_AT_WORK = text("records.state IN ('waiting', 'queued')")
"""As the partial index `records_due` says it; SQLite uses that only for a query with the same words."""

_UNDER_WAY = records.c.attempts > records.c.settled
_LAST = (attempts.c.record_pk == records.c.id) & (attempts.c.number == records.c.attempts)
_FREE: dict[str, Any] = {"lease": None, "leased_by": None, "leased_until": None}


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
                _AT_WORK,
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
            _lease(db, ids, lease, run_id, now + lease_seconds)
        return Claim(lease, len(ids))

    def recover(self, run_id: str, *, lease_seconds: float) -> Claim:
        """Take over what other runs let go of by dying, or by sleeping through their lease.

        Records that were never started go back to where they were. Those with an attempt under way come under the
        returned lease, an attempt without a candidate judged `interrupted`, so that checking and routing them
        finishes what the other run began.
        """
        now = time.time()
        others = (records.c.lease.is_not(None)) & (records.c.run_id != run_id)
        with self._writing(alone=True) as db:
            holders = db.execute(select(records.c.leased_by).where(others).distinct()).scalars().all()
            gone = [name for name in holders if not owners.lives(name)]
            lost = others & or_(records.c.leased_until < now, records.c.leased_by.in_(gone))
            # What is locked at this moment is being worked on.
            query = select(records.c.id, _UNDER_WAY).where(lost).order_by(records.c.id)
            found = db.execute(query.with_for_update(skip_locked=True)).all()
            started = [pk for pk, under_way in found if under_way]
            lease = uuid.uuid4().hex
            _lease(db, started, lease, run_id, now + lease_seconds)
            for page in in_pages([pk for pk, under_way in found if not under_way]):
                _give_back(db, records.c.id.in_(page))
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
            until = time.time() + lease_seconds
            db.execute(update(records).where(records.c.lease == lease).values(leased_until=until))

    def give_back(self, lease: str) -> int:
        """Let go of everything under a lease; how many records went back to where they were.

        Attempts without an outcome are taken back uncounted: we broke them off ourselves. Records with a candidate
        that nobody has judged stay leased, but any other run may take them over at once.
        """
        mine = records.c.lease == lease
        silent = select(records.c.id).join(attempts, _LAST).where(mine, _UNDER_WAY, attempts.c.candidate.is_(None))
        with self._writing() as db:
            broken_off = db.execute(silent.where(attempts.c.verdict.is_(None))).scalars().all()
            for page in in_pages(broken_off):
                these = records.c.id.in_(page)
                number = select(records.c.attempts).where(records.c.id == attempts.c.record_pk).scalar_subquery()
                db.execute(delete(attempts).where(attempts.c.record_pk.in_(page), attempts.c.number == number))
                db.execute(update(records).where(these).values(attempts=records.c.attempts - 1))
            count = _give_back(db, mine & ~_UNDER_WAY)
            db.execute(update(records).where(mine).values(leased_until=0.0))
        return count

    def to_generate(self, lease: str, *, suspect: bool) -> Iterator[Held]:
        """Leased records that have no attempt under way, oldest first.

        `suspect` chooses between those whose last attempt ended with the process and all the others.
        """
        was_interrupted = func.coalesce(records.c.fault_code, "") == FaultCode.INTERRUPTED.value
        chosen = was_interrupted if suspect else ~was_interrupted
        for row in self._leased(lease, ~_UNDER_WAY & chosen):
            yield Held(
                row["id"],
                row["record_id"],
                row["raw"],
                row["schema"],
                row["preset"],
                row["max_new_tokens"],
                row["attempts"] + 1,
            )

    def start_attempts(self, lease: str, run_id: str, requests: Sequence[Request], model: str) -> None:
        """Count attempts before they are made, so that a record that kills the process can't do so for ever.

        Records that the lease has lost, because it lapsed and another run took over, are left alone here and below.
        """
        with self._writing() as db:
            mine = _still_mine(db, lease, [request.key for request in requests])
            _start(db, run_id, [request for request in requests if request.key in mine], model)

    def save_outcomes(
        self, lease: str, run_id: str, made: Sequence[tuple[Request, Outcome, float]], model: str
    ) -> None:
        """Keep what the engine returned, and when (seconds since 1970).

        Requests that were refused before they started count as attempts too.
        """
        with self._writing() as db:
            mine = _still_mine(db, lease, [request.key for request, _, _ in made])
            made = [one for one in made if one[0].key in mine]
            if not made:
                return
            under_way = select(records.c.id).where(records.c.id.in_(mine), _UNDER_WAY)
            begun = set(db.execute(under_way).scalars())
            _start(db, run_id, [request for request, _, _ in made if request.key not in begun], model)
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
        for row in self._leased(lease, _UNDER_WAY & waiting, attempts.c.candidate, attempts.c.finish_reason):
            yield Unjudged(
                row["id"],
                row["attempts"],
                row["raw"],
                row["record_id"],
                row["schema"],
                row["candidate"],
                row["finish_reason"],
            )

    def save_verdicts(self, lease: str, verdicts: Sequence[Verdict]) -> None:
        """Keep what was found of candidates; a record whose candidate was accepted is done and released."""
        now = time.time()
        with self._writing() as db:
            mine = _still_mine(db, lease, [v.pk for v in verdicts])
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
            accepted = [{"pk": v.pk, "text": v.output} for v in verdicts if v.fault is None]
            if accepted:
                done = {"state": RecordState.ACCEPTED.value, "settled": records.c.attempts, "ended_at": now}
                no_fault = {"fault": None, "fault_code": None}
                statement = update(records).where(records.c.id == bindparam("pk"))
                db.execute(statement.values(output=bindparam("text"), **done, **no_fault, **_FREE), accepted)
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
                **_FREE,
            )
        )
        with self._writing() as db:
            mine = _still_mine(db, lease, [s.pk for s in settled])
            settled = [s for s in settled if s.pk in mine]
            if settled:
                db.execute(statement, [_settled_row(s, now) for s in settled])
                mark_changed(db, [s.pk for s in settled])

    def _leased(
        self, lease: str, which: ColumnElement[bool], *of_last_attempt: ColumnElement[Any]
    ) -> Iterator[Mapping[Any, Any]]:
        """Records under a lease with their schema, read in pages that fit in memory whatever their lines hold."""
        sizes = select(records.c.id, func.length(records.c.raw)).where(records.c.lease == lease, which)
        with self._reading() as db:
            found = [(pk, size) for pk, size in db.execute(sizes.order_by(records.c.id))]
        for page in in_pages_of_bytes(found):
            query = select(records, files.c.schema, *of_last_attempt).join(files, files.c.id == records.c.file_id)
            if of_last_attempt:
                query = query.join(attempts, _LAST)
            query = query.where(records.c.id.in_(page), records.c.lease == lease).order_by(records.c.id)
            with self._reading() as db:
                rows = db.execute(query).mappings().all()
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


def _still_mine(db: Connection, lease: str, pks: Sequence[int]) -> set[int]:
    """Which of these records are under the lease; they stay so until the transaction ends."""
    mine: set[int] = set()
    for page in in_pages(sorted(pks)):
        held = select(records.c.id).where(records.c.id.in_(page), records.c.lease == lease).order_by(records.c.id)
        mine |= set(db.execute(held.with_for_update()).scalars())
    return mine


def _start(db: Connection, run_id: str, requests: Sequence[Request], model: str) -> None:
    now = time.time()
    rows = [
        {
            "record_pk": r.key,
            "number": r.attempt,
            "run_id": run_id,
            "preset": r.preset.name,
            "max_new_tokens": r.max_new_tokens,
            "model": model,
            "started_at": now,
            "prompt_tokens": 0,
            "completion_tokens": 0,
        }
        for r in requests
    ]
    if rows:
        db.execute(insert(attempts), rows)
        for page in in_pages([r.key for r in requests]):
            db.execute(update(records).where(records.c.id.in_(page)).values(attempts=records.c.attempts + 1))


def _lease(db: Connection, ids: Sequence[int], lease: str, run_id: str, until: float) -> None:
    values = {"state": RecordState.LEASED.value, "lease": lease, "leased_by": owners.owner(), "leased_until": until}
    for page in in_pages(ids):
        db.execute(update(records).where(records.c.id.in_(page)).values(**values, run_id=run_id))


def _give_back(db: Connection, which: ColumnElement[bool]) -> int:
    tried = case((records.c.attempts > 0, RecordState.QUEUED.value), else_=RecordState.WAITING.value)
    return db.execute(update(records).where(which).values(state=tried, **_FREE)).rowcount


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
