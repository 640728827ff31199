"""A fake engine for tests, ours and those of people who write schemas: no model, no torch, any answer you like."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from gristmill.engine.base import Candidate, Failed, FinishReason, ModelInfo, Outcome, Request, Started
from gristmill.faults import Fault
from gristmill.grammar.constraint import constraint_for
from gristmill.prompts import messages_for
from gristmill.schema import written

Answer = Callable[[Request], str | Fault | tuple[str, FinishReason]]


def first_example(request: Request) -> str:
    """Answers every record with the output of the schema's first worked example."""
    return constraint_for(request.schema).spell(written(request.schema.examples[0].output))


class FakeEngine:
    """Answers by a function instead of a model.

    `answer` returns the candidate's text, or text and finish reason, or a fault. `seconds_per_record` makes it as
    slow as a model would be. `requests` keeps what was asked, in order.
    """

    def __init__(
        self,
        answer: Answer = first_example,
        *,
        name: str = "fake",
        batch: int = 8,
        seconds_per_record: float = 0.0,
        context_tokens: int = 4096,
    ) -> None:
        self._answer = answer
        self._batch = batch
        self._seconds = seconds_per_record
        self.requests: list[Request] = []
        self.model = ModelInfo(name, f"fingerprint of {name}", "none", "none", context_tokens)

    def generate(self, requests: Iterable[Request], started: Started) -> Iterator[Outcome]:
        """See `gristmill.engine.base.Engine.generate`; a word counts as a token."""
        source = iter(requests)
        while batch := list(islice(source, self._batch)):
            yield from self._run(batch, started)

    def _run(self, batch: Sequence[Request], started: Started) -> Iterator[Outcome]:
        ready: list[tuple[Request, int]] = []
        for request in batch:
            turns = messages_for(request.schema, request.record, request.repair)
            if isinstance(turns, Fault):
                yield Failed(request.key, turns)
                continue
            ready.append((request, sum(len(turn["content"].split()) for turn in turns)))
        if ready:
            started([request for request, _ in ready])
        for request, prompt_tokens in ready:
            self.requests.append(request)
            if self._seconds:
                time.sleep(self._seconds)
            answer = self._answer(request)
            if isinstance(answer, Fault):
                yield Failed(request.key, answer)
                continue
            text, reason = (answer, FinishReason.STOP) if isinstance(answer, str) else answer
            yield Candidate(request.key, text, reason, prompt_tokens, len(text.split()))
