"""The retry policy: a pure function from what was tried to what to do next."""

from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.faults import FaultCode

LADDER = ("extract", "stable", "structured")
"""Presets in the order in which they are tried after an answer that was wrong rather than cut."""

MAX_ATTEMPTS = 4
"""Attempts before a record is dead, but for those that ended with the process: these have a limit of their own."""

LIMITS: dict[FaultCode, int] = {
    FaultCode.TRUNCATED: 3,
    FaultCode.DEGENERATE: 3,
    FaultCode.MOJIBAKE: 3,
    FaultCode.INVALID_JSON: 3,
    FaultCode.INVALID_XML: 3,
    FaultCode.INVALID: 3,
    FaultCode.OUT_OF_MEMORY: 2,
    FaultCode.ENGINE_ERROR: 3,
    FaultCode.INTERRUPTED: 3,
}
"""How often each fault may occur to one record; the last one makes it dead."""

_BACKOFF_SECONDS = 60.0
_BUDGET_CAP = 2048


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that failed: under which preset and budget, with which fault."""

    preset: str
    max_new_tokens: int
    fault: FaultCode


@dataclass(frozen=True, slots=True)
class Again:
    """Try again, not before `wait_seconds` from now."""

    preset: str
    max_new_tokens: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class Dead:
    """No further attempt; `reason` says why in words."""

    reason: str


def decide(
    history: Sequence[Attempt], fault: FaultCode, *, jitter: float = 0.0, max_attempts: int = MAX_ATTEMPTS
) -> Again | Dead:
    """What follows from a record's failed attempts, the last of which ended with `fault`.

    A cut answer gets twice the tokens under the same preset; a wrong or degenerate one the next preset of `LADDER`, and
    the last of these with another seed once all were tried; a fault of the machine the same again after 60 seconds,
    doubled each time. `jitter` (0 to 1) lengthens a wait by up to that share, so that records which failed together
    do not all return together.
    """
    if fault.permanent:
        return Dead(f"{fault} can't be mended by another attempt")
    if not history:
        raise ValueError("history is empty; a fault that is worth a retry comes from an attempt")
    same = sum(attempt.fault is fault for attempt in history)
    if same >= LIMITS[fault]:
        return Dead(f"{fault} {same} times, the limit for this fault")
    # A process that died is not the record's doing until it is tried alone, and has a limit of its own.
    counted = sum(attempt.fault is not FaultCode.INTERRUPTED for attempt in history)
    if counted >= max_attempts and fault is not FaultCode.INTERRUPTED:
        return Dead(f"{counted} attempts, the limit")
    last = history[-1]
    match fault:
        case FaultCode.TRUNCATED:
            if last.max_new_tokens >= _BUDGET_CAP:
                return Dead(f"truncated at {last.max_new_tokens} new tokens, the largest budget")
            return Again(last.preset, min(2 * last.max_new_tokens, _BUDGET_CAP), 0.0)
        case FaultCode.OUT_OF_MEMORY | FaultCode.ENGINE_ERROR | FaultCode.INTERRUPTED:
            return Again(last.preset, last.max_new_tokens, _BACKOFF_SECONDS * 2 ** (same - 1) * (1 + jitter))
        case _:
            tried = {attempt.preset for attempt in history}
            # After the last rung that rung again: it samples, and every attempt has a seed of its own.
            following = next((preset for preset in LADDER if preset not in tried), LADDER[-1])
            return Again(following, last.max_new_tokens, 0.0)
