"""Reading before writing: an engine that finds what it can in the text and has the rest written around it."""

import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from gristmill.engine.base import Candidate, Engine, FinishReason, ModelInfo, Outcome, Request, Started
from gristmill.engine.loading import LoadedModel
from gristmill.grammar.constraint import constraint_for
from gristmill.reading.fields import lessons, readable, reads
from gristmill.reading.reader import Reader, answer_of
from gristmill.reading.states import States, depths, word_states
from gristmill.schema import Schema

log = logging.getLogger(__name__)

WINDOW = 32
"""Requests that are read together."""

_WINDOW_CHARACTERS = 50_000
_MOST_READY = 128
_MOST_READERS = 64


class Inner(Engine, States, Protocol):
    """An engine that also shows its model's states."""


class ReadingEngine:
    """Reads fields that are tied to the text, for schemas whose examples teach it, and hands the rest to an engine."""

    def __init__(self, inner: Inner, loaded: LoadedModel) -> None:
        self._inner = inner
        self._tokenizer = loaded.tokenizer
        self._layers = depths(loaded.model.config.get_text_config().num_hidden_layers)
        self._readers: dict[str, Reader] = {}

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self._inner.model

    def generate(self, requests: Iterable[Request], started: Started) -> Iterator[Outcome]:
        """See `gristmill.engine.base.Engine.generate`.

        Raises:
            SchemaError: a schema can't be made a grammar.
        """
        source = iter(requests)
        ready: deque[Outcome] = deque()
        to_write: deque[Request] = deque()

        def writing() -> Iterator[Request]:
            # What is ready must not wait long for what is written.
            while to_write or (len(ready) < _MOST_READY and self._read(source, to_write, ready, started)):
                while to_write:
                    yield to_write.popleft()

        while True:
            while ready:
                yield ready.popleft()
            if not to_write and not self._read(source, to_write, ready, started):
                break
            if not to_write:
                continue
            for outcome in self._inner.generate(writing(), started):
                yield outcome
                while ready:
                    yield ready.popleft()
        yield from ready

    def _read(
        self, source: Iterator[Request], to_write: deque[Request], ready: deque[Outcome], started: Started
    ) -> bool:
        """Read the next requests; whether there were any."""
        window: list[Request] = []
        size = 0
        while len(window) < WINDOW and size < _WINDOW_CHARACTERS and (request := next(source, None)) is not None:
            window.append(request)
            size += len(request.record.text)
        wanted = [request for request in window if self._is_read(request)]
        # So that readers are there before the clock of an attempt runs.
        readers = {request.schema.fingerprint: self._reader(request.schema) for request in wanted}
        states = word_states([r.record.text for r in wanted], self._inner, self._tokenizer, self._layers)
        read: dict[int, Outcome | Request] = {}
        for request, words in zip(wanted, states, strict=True):
            constraint = constraint_for(request.schema)
            known = readers[request.schema.fingerprint].read(request.record.text, words)
            value, whole = answer_of(constraint.tree, known)
            try:
                text = constraint.spelling.spell(value)
            except ValueError:
                # A word with a character that XML can't hold: the grammar leaves such words out, so it is written.
                continue
            if whole:
                read[request.key] = Candidate(request.key, text, FinishReason.STOP, words.tokens, 0)
            else:
                read[request.key] = replace(request, known=known)
        done = [request for request in wanted if isinstance(read.get(request.key), Candidate)]
        if done:
            started(done)
        for request in window:
            outcome = read.get(request.key, request)
            if isinstance(outcome, Request):
                to_write.append(outcome)
            else:
                ready.append(outcome)
        return bool(window)

    def _is_read(self, request: Request) -> bool:
        first_try = request.known is None and request.repair is None
        return first_try and bool(self._tokenizer.is_fast) and reads(request.schema) and readable(request.record.text)

    def _reader(self, schema: Schema) -> Reader:
        key = schema.fingerprint
        if key not in self._readers:
            began = time.perf_counter()
            texts: Sequence[str] = [example.text for example in lessons(schema)]
            reader = Reader(schema, word_states(texts, self._inner, self._tokenizer, self._layers))
            if len(self._readers) == _MOST_READERS:
                del self._readers[next(iter(self._readers))]
            self._readers[key] = reader
            log.info(
                "schema %s: read off the text: %s; F1 %.2f between its %d examples (%.1f s)",
                schema.name,
                ", ".join(reader.paths) or "nothing, no value of its examples stands in their texts",
                reader.quality.f1,
                len(texts),
                time.perf_counter() - began,
                extra={"action": "reader_fitted"},
            )
        return self._readers[key]
