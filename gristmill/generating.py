"""One chunk in the model: requests out of the store, outcomes back into it, whatever ends it."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence

from gristmill.engine import Engine, Failed, Outcome, Request
from gristmill.errors import GristmillError, InvariantError, StorageError
from gristmill.faults import Fault, FaultCode
from gristmill.presets import get_preset
from gristmill.records import parse_line
from gristmill.schema import Schema
from gristmill.store import Queue
from gristmill.store.database import hurried
from gristmill.store.lease import LeaseKeeper

log = logging.getLogger(__name__)

GROUP = 256
_GROUP_SECONDS = 1.0
_GROUP_TEXT = 8 << 20
"""Outcomes are committed when so many have come, so long has passed since the first of them, or their records hold so
many characters; a killed process repeats at most these and those in the model."""

_SAY_EVERY_SECONDS = 20.0
_JUDGE_EVERY_SECONDS = 5.0


class Generation:
    """An attempt for each record under a lease that has none under way.

    Records whose last attempt ended with the process or broke the engine are generated one by one, after all others:
    the one that was why, if one was, then takes no neighbour with it. `judge` is called now and then, so that results
    can be had before the chunk is at its end. `model_seconds` is the time in the engine.
    """

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        run_id: str,
        lease: str,
        *,
        schema_named: Callable[[str], Schema],
        progress: Callable[[int], None],
        judge: Callable[[], object],
    ) -> None:
        self.model_seconds = 0.0
        self._engine = engine
        self._queue = queue
        self._run_id = run_id
        self._lease = lease
        self._schema_named = schema_named
        self._progress = progress
        self._judge = judge
        self._judged = time.monotonic()
        self._pending: dict[int, Request] = {}
        self._in_engine: dict[int, Request] = {}
        self._made: list[tuple[Request, Outcome, float]] = []
        self._count = 0
        self._said = time.monotonic()

    def run(self, lease_seconds: float) -> int:
        """Generate, and keep the lease meanwhile; how many attempts were made.

        Whatever ends this early, what the engine returned is kept and the rest given back.

        Raises:
            InvariantError: the engine or the store broke its contract. Whatever the engine raises: those that were in
            it have a fault then.
        """
        with LeaseKeeper(self._queue, self._lease, lease_seconds) as kept:
            try:
                self._work(kept)
            except GristmillError:
                self._let_go()
                raise
            except Exception as error:
                # The engine broke: one of those in it may be why, and is not to break it for ever.
                fault = Fault(FaultCode.ENGINE_ERROR, f"the engine raised {type(error).__name__}")
                self._made += [(r, Failed(r.key, fault), time.time()) for r in self._in_engine.values()]
                self._let_go()
                raise
            except BaseException:
                # Somebody wants the process to end, and does not wait long.
                with hurried():
                    self._let_go()
                raise
        return self._count

    def _work(self, kept: LeaseKeeper) -> None:
        began = time.perf_counter()
        first, text = 0.0, 0
        try:
            for outcome in self._outcomes():
                kept.progressed()
                first, text = (first, text) if self._made else (time.monotonic(), 0)
                self._in_engine.pop(outcome.key, None)
                request = self._pending.pop(outcome.key)
                self._made.append((request, outcome, time.time()))
                text += len(request.record.text)
                if len(self._made) >= GROUP or text > _GROUP_TEXT or time.monotonic() - first > _GROUP_SECONDS:
                    self._save()
            if self._pending:
                raise InvariantError(
                    f"the engine gave no outcome for {len(self._pending)} records; they are given back"
                )
            self._save()
        finally:
            self.model_seconds += time.perf_counter() - began

    def _outcomes(self) -> Iterator[Outcome]:
        yield from self._engine.generate(self._requests(suspect=False), self._started)
        for request in self._requests(suspect=True):
            # What its neighbours brought is safe before the next one, which may be the last, begins.
            self._save()
            yield from self._engine.generate([request], self._started)

    def _requests(self, *, suspect: bool) -> Iterator[Request]:
        before = time.perf_counter()
        for held in self._queue.to_generate(self._lease, suspect=suspect):
            content = parse_line(held.raw, held.record_id)
            if isinstance(content, Fault):
                raise InvariantError(f"record {held.pk} was readable when it was taken in and is not any more")
            schema, preset = self._schema_named(held.schema), get_preset(held.preset)
            request = Request(held.pk, content, schema, preset, held.max_new_tokens, held.attempt)
            fault = Fault.from_json(json.loads(held.fault)) if held.fault else None
            request = request.mending(held.candidate, fault, repaired=held.repaired)
            self._pending[held.pk] = request
            self.model_seconds -= time.perf_counter() - before
            yield request
            before = time.perf_counter()
        self.model_seconds -= time.perf_counter() - before

    def _started(self, batch: Sequence[Request]) -> None:
        before = time.perf_counter()
        self._queue.start_attempts(self._lease, self._run_id, batch, self._engine.model.name)
        self._in_engine.update((request.key, request) for request in batch)
        self.model_seconds -= time.perf_counter() - before

    def _save(self) -> None:
        before = time.perf_counter()
        if self._made:
            self._queue.save_outcomes(self._lease, self._run_id, self._made, self._engine.model.name)
            self._count += len(self._made)
            self._progress(len(self._made))
            self._made.clear()
            if time.monotonic() - self._judged > _JUDGE_EVERY_SECONDS:
                self._judge()
                self._judged = time.monotonic()
            if time.monotonic() - self._said > _SAY_EVERY_SECONDS:
                self._said = time.monotonic()
                log.info("%d records of this chunk generated so far", self._count, extra={"action": "progress"})
        self.model_seconds -= time.perf_counter() - before

    def _let_go(self) -> None:
        """Keep what is made and give the rest back, if the store lets us; if not, the next run takes it over."""
        try:
            self._save()
            self._judge()
            self._queue.give_back(self._lease)
        except StorageError as error:
            log.warning("what was in hand is not given back but taken over by the next run: %s", error)
