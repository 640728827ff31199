"""The words of a record's life: its states, the moves between them, and what is handed over at each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gristmill.faults import Fault
from gristmill.policy import Again, Attempt, Dead

ACCEPTED = "accepted"
"""The verdict of an attempt whose candidate was accepted; every other verdict is a fault's code."""


class RecordState(StrEnum):
    """Where a record is. Waiting: never tried. Queued: tried, and due again. Leased: some run has it in hand."""

    WAITING = "waiting"
    LEASED = "leased"
    ACCEPTED = "accepted"
    QUEUED = "queued"
    DEAD = "dead"


UNFINISHED = (RecordState.WAITING, RecordState.LEASED, RecordState.QUEUED)

MOVES: dict[RecordState, frozenset[RecordState]] = {
    # Claimed by a run.
    RecordState.WAITING: frozenset({RecordState.LEASED}),
    # Given back untried or tried; judged well; judged badly; judged badly for the last time.
    RecordState.LEASED: frozenset({RecordState.WAITING, RecordState.QUEUED, RecordState.ACCEPTED, RecordState.DEAD}),
    # Claimed by a run; dropped by hand.
    RecordState.QUEUED: frozenset({RecordState.LEASED, RecordState.DEAD}),
    # Requeued by hand.
    RecordState.DEAD: frozenset({RecordState.QUEUED}),
    RecordState.ACCEPTED: frozenset(),
}
"""Every move that a record can make; a line that can't be read is dead from the start."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Records that one run has in hand, under one lease."""

    lease: str
    records: int


@dataclass(frozen=True, slots=True)
class Held:
    """A leased record that is to be generated; `attempt` is the number (from 1) of the attempt to come.

    `candidate` and `fault` (as JSON) are those of the last refused answer, None for the first attempt and after a
    requeue; `repaired` says whether that one was a repair itself.
    """

    pk: int
    record_id: str
    raw: bytes
    schema: str
    preset: str
    max_new_tokens: int
    attempt: int
    candidate: str | None
    fault: str | None
    repaired: bool


@dataclass(frozen=True, slots=True)
class Unjudged:
    """An attempt whose candidate waits to be judged."""

    pk: int
    attempt: int
    schema: str
    text: str
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found of an attempt: the accepted output as JSON text with what stands beside it, or the fault."""

    pk: int
    attempt: int
    output: str | None
    fault: Fault | None
    beside: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failing:
    """A leased record whose last attempt failed; `history` holds its failed attempts, oldest first."""

    pk: int
    history: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """What the policy decided of a failing record."""

    pk: int
    decision: Again | Dead


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One record as `gristmill queue` shows it. Times are seconds since 1970."""

    pk: int
    record_id: str
    schema: str
    file: str
    line: int
    state: RecordState
    attempts: int
    preset: str
    due_at: float
    fault: Fault | None
