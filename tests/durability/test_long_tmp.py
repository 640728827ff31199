"""Whatever several runs do to the queue in whatever order, dying in between: a record makes only the moves it can."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete, select

from gristmill.engine import Candidate, Failed, FinishReason, Request
from gristmill.faults import Fault, FaultCode
from gristmill.policy import decide
from gristmill.presets import get_preset
from gristmill.records import read_lines
from gristmill.schema import Schema
from gristmill.store import Claim, Desk, Invariants, Ledger, Queue, RecordState, Settled, Verdict, open_database
from gristmill.store import owner as owners
from gristmill.store.life import MOVES
from gristmill.store.tables import attempts, files, leases, records, runs
from tests.unit.test_checking import Point

LEASE_SECONDS = 1000.0
SCHEMA = Schema("note", Point)


@dataclass
class Run:
    """One run in a process of its own, and what it has in hand."""

    id: str
    owner: str
    kind: str
    claims: list[Claim] = field(default_factory=list)


class QueueMachine(RuleBasedStateMachine):
    """Runs that claim, work, give back, sleep through their leases and die, and people at the desk."""

    url: str

    active = Bundle("active")

    @initialize()
    def empty(self) -> None:
        """An empty database."""
        self.engine = open_database(self.url)
        self.queue, self.ledger, self.desk = Queue(self.engine), Ledger(self.engine), Desk(self.engine)
        self.store = Invariants(self.engine)
        with self.engine.begin() as db:
            for table in (attempts, records, leases, files, runs):
                db.execute(delete(table))
        self.alive: set[str] = {owners.owner()}
        self.count = self.names = 0
        self.before: dict[int, Any] = {}
        self.taken: set[str] = set()

    def teardown(self) -> None:
        """After everybody died, one more run and its retries bring every record to an end."""
        if not hasattr(self, "engine"):
            return
        self.alive = {owners.owner()}
        with self.lives():
            for kind in ("extract", *["retry"] * 40):
                run = self.begin(kind)
                while (orphans := self.queue.recover(run.id, lease_seconds=LEASE_SECONDS)).records or (
                    orphans := self.claimed(run, 100)
                ).records:
                    self.work(run, orphans, [True], 100)
                if not self.ledger.unfinished():
                    break
        states = {row.state for row in self.rows()}
        assert states <= {RecordState.ACCEPTED, RecordState.DEAD}, states
        assert list(self.store.broken()) == []
        self.engine.dispose()

    @contextmanager
    def lives(self, owner: str | None = None) -> Iterator[None]:
        """Act as the process `owner`, in a world where those in `alive` live."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owners, "lives", lambda name: name in self.alive)
            if owner is not None:
                patch.setattr(owners, "owner", lambda: owner)
            yield

    def rows(self) -> list[Any]:
        """Every record."""
        with self.engine.connect().execution_options(gristmill_reading=True) as db:
            return list(db.execute(select(records).order_by(records.c.id)))

    def begin(self, kind: str) -> Run:
        """Open a run."""
        self.names += 1
        owner = f"host:{self.names}:1.00"
        self.alive.add(owner)
        with self.lives(owner):
            return Run(self.ledger.start_run(kind, {}), owner, kind)

    def claimed(self, run: Run, limit: int) -> Claim:
        """Claim records for a run."""
        states = [RecordState.QUEUED if run.kind == "retry" else RecordState.WAITING]
        with self.lives(run.owner):
            claim = self.queue.claim(
                run.id, states, limit, lease_seconds=LEASE_SECONDS, schemas=["note"], due_by=float("inf")
            )
        if claim.records:
            run.claims.append(claim)
        return claim

    def work(self, run: Run, claim: Claim, answers: list[bool | None], steps: int) -> None:
        """Generate, check and route under a claim, but break off after `steps` of it."""
        asked = [
            Request(h.pk, _record(h.raw), SCHEMA, get_preset(h.preset), h.max_new_tokens, h.attempt)
            for suspect in (False, True)
            for h in self.queue.to_generate(claim.lease, suspect=suspect)
        ]
        fault = Fault(FaultCode.OUT_OF_MEMORY, "no room")
        made = []
        for number, request in enumerate(asked):
            answer = answers[number % len(answers)]
            candidate = Candidate(request.key, "good" if answer else "bad", FinishReason.STOP, 1, 1)
            made.append((request, Failed(request.key, fault) if answer is None else candidate, 1.0))
        if steps > 0:
            self.queue.start_attempts(claim.lease, run.id, asked[: steps * 2], "model")
        if steps > 1:
            self.queue.save_outcomes(claim.lease, run.id, made[: steps * 2 - 2], "model")
        if steps > 2:
            bad = Fault(FaultCode.INVALID, "bad")
            verdicts = [
                Verdict(u.pk, u.attempt, *(("{}", None) if u.text == "good" else (None, bad)))
                for u in self.queue.unjudged(claim.lease)
            ]
            self.queue.save_verdicts(claim.lease, verdicts[: steps * 2 - 4])
        if steps > 3:
            failing = self.queue.failing(claim.lease)
            self.queue.settle(claim.lease, [Settled(f.pk, decide(f.history, f.history[-1].fault)) for f in failing])
        if steps > 4:
            self.queue.give_back(claim.lease)

    @rule(size=st.integers(1, 6), broken=st.booleans())
    def file_arrives(self, size: int, broken: bool) -> None:
        """A file is taken in; one of its lines may be unreadable."""
        lines = [b'{"id": "%d", "text": "t"}' % n for n in range(self.count, self.count + size)] + [b"{"] * broken
        self.count += len(lines)
        name = f"f{self.count}"
        common = {"schema": "note", "preset": "extract", "model": "model", "name": name}
        run_id = self.ledger.start_run("extract", {})
        self.ledger.add_file(run_id, read_lines(lines, name), key=name, content_sha256=name, **common)

    @rule(target=active, kind=st.sampled_from(["extract", "retry"]))
    def run_begins(self, kind: str) -> Run:
        """A run begins."""
        return self.begin(kind)

    @rule(run=active, limit=st.integers(1, 5))
    def claim(self, run: Run, limit: int) -> None:
        """A run claims records; nobody else's lease is touched."""
        held = {row.id for row in self.rows() if row.state == RecordState.LEASED}
        claim = self.claimed(run, limit)
        mine = {row.id for row in self.rows() if row.lease == claim.lease}
        assert len(mine) == claim.records <= limit
        assert not mine & held

    @rule(
        run=active,
        which=st.integers(0, 9),
        answers=st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=4),
        steps=st.integers(0, 5),
    )
    def work_on(self, run: Run, which: int, answers: list[bool | None], steps: int) -> None:
        """A run works on something that it claimed; if another took that over, nothing changes."""
        if not run.claims:
            return
        claim = run.claims[which % len(run.claims)]
        before = self.rows()
        with self.lives(run.owner):
            self.work(run, claim, answers, steps)
        if claim.lease in self.taken:
            assert self.rows() == before

    @rule(run=active, which=st.integers(0, 9))
    def give_back(self, run: Run, which: int) -> None:
        """A run stops and lets go of something."""
        if run.claims:
            self.queue.give_back(run.claims[which % len(run.claims)].lease)

    @rule(run=active, which=st.integers(0, 9))
    def sleep(self, run: Run, which: int) -> None:
        """A run sleeps through a lease."""
        if run.claims:
            self.queue.renew(run.claims[which % len(run.claims)].lease, -1.0)

    @rule(run=consumes(active))
    def die(self, run: Run) -> None:
        """A process dies."""
        self.alive.discard(run.owner)

    @rule(run=active)
    def recover(self, run: Run) -> None:
        """A run takes over what others let go of."""
        before = {row.lease for row in self.rows() if row.lease}
        with self.lives(run.owner):
            claim = self.queue.recover(run.id, lease_seconds=LEASE_SECONDS)
        self.taken |= before - {row.lease for row in self.rows() if row.lease}
        if claim.records:
            run.claims.append(claim)

    @rule(fault=st.sampled_from([None, FaultCode.INVALID, FaultCode.OUT_OF_MEMORY]))
    def requeue(self, fault: FaultCode | None) -> None:
        """A person puts records in again."""
        self.desk.requeue(self.ledger.start_run("requeue", {}), fault=fault)

    @rule(number=st.integers(0, 30))
    def drop(self, number: int) -> None:
        """A person gives a record up."""
        self.desk.drop(self.ledger.start_run("drop", {}), record_id=str(number))

    @invariant()
    def moves_are_legal(self) -> None:
        """No record is lost, an accepted one never changes, and every other makes only the moves that it can."""
        if not hasattr(self, "engine"):
            return
        now = {row.id: row for row in self.rows()}
        assert len(now) == self.count
        for pk, old in self.before.items():
            new = now[pk]
            if old.state == RecordState.ACCEPTED:
                assert new == old
            elif new.state != old.state:
                # What a run does in one go may be two moves.
                between = MOVES[RecordState(old.state)]
                assert new.state in between or any(new.state in MOVES[state] for state in between)
            assert new.attempts >= old.attempts - (old.attempts > old.settled)
        self.before = now

    @invariant()
    def nothing_is_off(self) -> None:
        """What the doctor looks for is not there."""
        if hasattr(self, "engine"):
            assert list(self.store.broken()) == []


def _record(raw: bytes) -> Any:
    return next(read_lines([raw], "x")).content


def test_the_queue(database_url: str, tmp_path: Path) -> None:
    """Random lives of a queue, on both databases."""
    QueueMachine.url = database_url or f"sqlite:///{tmp_path / 'queue.sqlite3'}"
    # Where a night of thousands of examples found nothing, the same ones in each run of the tests will do.
    chosen = settings(max_examples=1500, stateful_step_count=50, deadline=None, database=None)
    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(QueueMachine, settings=settings(chosen, suppress_health_check=slow))
