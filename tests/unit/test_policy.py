"""The retry policy as a table: history in, decision out."""

import pytest

from gristmill.faults import FaultCode as F
from gristmill.policy import LADDER, Again, Attempt, Dead, decide

I, T, D, O = F.INVALID, F.TRUNCATED, F.DEGENERATE, F.OUT_OF_MEMORY  # noqa: E741 - one letter a column


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([("extract", 256, I)], Again("stable", 256, 0.0)),
        ([("extract", 256, I), ("stable", 256, I)], Again("structured", 256, 0.0)),
        ([("extract", 256, I), ("stable", 256, D)], Again("structured", 256, 0.0)),
        (
            [("extract", 256, I), ("stable", 256, I), ("structured", 256, I)],
            Dead("invalid 3 times, the limit for this fault"),
        ),
        ([("extract", 256, T)], Again("extract", 512, 0.0)),
        ([("extract", 256, T), ("extract", 512, T)], Again("extract", 1024, 0.0)),
        ([("code", 2048, T)], Dead("truncated at 2048 new tokens, the largest budget")),
        ([("extract", 1500, T)], Again("extract", 2048, 0.0)),
        ([("extract", 256, O)], Again("extract", 256, 60.0)),
        ([("extract", 256, O), ("extract", 256, O)], Dead("out_of_memory 2 times, the limit for this fault")),
        ([("extract", 256, F.ENGINE_ERROR)] * 2, Again("extract", 256, 120.0)),
        ([("chat", 256, I)], Again("extract", 256, 0.0)),
        ([("stable", 256, I), ("structured", 256, D), ("extract", 256, D)], Again("structured", 256, 0.0)),
        (
            [("extract", 256, T), ("extract", 512, I), ("stable", 512, D), ("structured", 512, I)],
            Dead("4 attempts, the limit"),
        ),
        ([("extract", 256, F.INTERRUPTED)] * 3, Dead("interrupted 3 times, the limit for this fault")),
        ([("extract", 256, F.TOO_LONG)], Dead("too_long can't be mended by another attempt")),
    ],
)
def test_decisions(history: list[tuple[str, int, F]], expected: Again | Dead) -> None:
    """Each history has one right decision."""
    assert decide([Attempt(*attempt) for attempt in history], history[-1][2]) == expected


def test_jitter_lengthens_waits_only() -> None:
    """60 s with a jitter of 0.5 are 90 s; a retry without a wait stays without one."""
    assert decide([Attempt("extract", 256, O)], O, jitter=0.5) == Again("extract", 256, 90.0)
    assert decide([Attempt("extract", 256, I)], I, jitter=0.5) == Again("stable", 256, 0.0)


@pytest.mark.parametrize("fault", list(F))
def test_every_record_ends(fault: F) -> None:
    """Whatever the fault, repeated, a record is dead after at most the number of attempts allowed."""
    history: list[Attempt] = []
    preset, budget = LADDER[0], 256
    for _ in range(4):
        history.append(Attempt(preset, budget, fault))
        decision = decide(history, fault)
        if isinstance(decision, Dead):
            return
        preset, budget = decision.preset, decision.max_new_tokens
    pytest.fail(f"still alive after {len(history)} attempts")
