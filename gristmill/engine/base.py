"""What every way of running a model shares: requests in, candidates or faults out. No torch here."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from gristmill.faults import Fault
from gristmill.grammar.constraint import constraint_for
from gristmill.grammar.rules import Known
from gristmill.presets import Preset
from gristmill.records import Record
from gristmill.repair import Repair, repair_of
from gristmill.schema import Schema


class FinishReason(StrEnum):
    """How a row ended: by itself, at its token budget, or stopped because it ran in place."""

    STOP = "stop"
    LENGTH = "length"
    DEGENERATE = "degenerate"


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt to be made. `key` is the caller's handle and comes back with the outcome.

    Randomness depends on the engine's seed, the record's id and `attempt` (from 1) alone. What is `known` of the answer
    is forced; `repair` says what was wrong with an earlier one.
    """

    key: int
    record: Record
    schema: Schema
    preset: Preset
    max_new_tokens: int
    attempt: int = 1
    known: Known = None
    repair: Repair | None = None

    def mending(self, candidate: str | None, fault: Fault | None, *, repaired: bool = False) -> "Request":
        """This attempt as a repair of an earlier candidate, as far as that can be repaired.

        One that was a repair already (`repaired`) is not repaired again: what it kept may be what is wrong.
        """
        if candidate is None or fault is None or repaired:
            return self
        repair = repair_of(constraint_for(self.schema), candidate, fault)
        return self if repair is None else replace(self, known=repair.known, repair=repair)


@dataclass(frozen=True, slots=True)
class Candidate:
    """What an attempt produced, not yet judged.

    Token counts are in tokens of the model's vocabulary; `tokens` are the ids behind `text`, without the end token.
    """

    key: int
    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    completion_tokens: int
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt that produced no candidate."""

    key: int
    fault: Fault


Outcome = Candidate | Failed
Started = Callable[[Sequence[Request]], None]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The model behind an engine. `fingerprint` is the same for the same weights, tokenizer and configuration."""

    name: str
    fingerprint: str
    device: str
    dtype: str
    context_tokens: int
    notes: tuple[str, ...] = ()


def as_quantized(name: str, quantize: str) -> str:
    """The name or fingerprint of a model whose weights are quantized: it is another model, with other answers."""
    return name if quantize == "none" else f"{name}-{quantize}"


class Engine(Protocol):
    """One loaded model. An engine is not thread-safe: one caller at a time."""

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""

    def generate(self, requests: Iterable[Request], started: Started) -> Iterator[Outcome]:
        """Yield one outcome for each request, in the order in which they finish.

        Requests are taken from the iterable as room appears. `started` is called with the requests that are about
        to enter the model, before they cost anything; a request refused beforehand is not among them. Closing the
        iterator stops the work.
        """
