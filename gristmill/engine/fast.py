"""The fast way: ragged continuous batching inside transformers, with a shared prefix and fast-forward.

Rows join and leave at every step. What all prompts of a schema have in common is computed once and kept. Tokens that
the grammar forces are appended unsampled and fed with the next real one. Masks of all rows are computed in one
parallel call while the model runs.
"""

import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

import torch
from llguidance import LLExecutor, LLMatcher
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask_par
from torch import Tensor

from gristmill.engine.base import Candidate, Failed, FinishReason, ModelInfo, Outcome, Request, Started
from gristmill.engine.grammars import Matchers
from gristmill.engine.hidden import batched_by_size, hidden
from gristmill.engine.loading import LoadedModel, free_bytes
from gristmill.engine.masks import forbid
from gristmill.engine.pools import Pools, compact
from gristmill.engine.prompting import prompt_tokens
from gristmill.engine.ragged import Apart, Piece, RaggedAttention, Step, rounded
from gristmill.engine.sampling import RowSampler, is_filler, running_in_place, seed_for
from gristmill.engine.slots import Pool, Prefix
from gristmill.errors import ModelError
from gristmill.faults import Fault, FaultCode
from gristmill.prompts import chooses, messages_for
from gristmill.records import Record
from gristmill.schema import Schema

log = logging.getLogger(__name__)

_names = itertools.count()

LOOKAHEAD = 64
"""Requests that are tokenized ahead of being admitted."""

_FIRST_ROWS = 16
_LOOK_EVERY = 8
_FLAT_STEP = 16
_SHORTEST_PREFIX = 16


_Waiting = tuple[Request, list[int], LLMatcher]


@dataclass
class _Row:
    """One attempt in the model: the tokens still to be fed, and what has been written."""

    request: Request
    pool: Pool
    slot: int
    prompt_size: int
    pending: list[int]
    matcher: LLMatcher
    sampler: RowSampler
    held: int = 0
    written: list[int] = field(default_factory=list)
    looked: int = 0


def supports(model: Any) -> bool:
    """Whether a model class hands its attention to transformers' attention interface."""
    return bool(getattr(model, "_supports_attention_backend", False)) and hasattr(model.config, "num_key_value_heads")


class FastEngine:
    """Ragged continuous batching over one model whose class supports transformers' attention interface.

    `token_budget` bounds the positions of all slots together (None: what half of the memory holds that is free when a
    batch begins), `step_tokens` the tokens of one pass, `max_rows` the rows at once. With `fast_forward` off every
    token is sampled.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        seed: int = 0,
        token_budget: int | None = None,
        step_tokens: int = 512,
        max_rows: int = 64,
        fast_forward: bool = True,
    ) -> None:
        if not supports(loaded.model):
            name = type(loaded.model).__name__
            raise ModelError(f"{name} has no attention interface, which the fast engine needs; use auto or reference")
        self._loaded = loaded
        self._seed = seed
        self._limits = (step_tokens, max_rows)
        self._step_tokens, self._max_rows = self._limits
        self._fast_forward = fast_forward
        name = f"gristmill_ragged_{next(_names)}"
        self._attention = RaggedAttention(name)
        loaded.model.set_attn_implementation(name)
        self._tokenizer = from_tokenizer(loaded.tokenizer, eos_token=loaded.eos_id)
        self._executor = LLExecutor()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._matchers = Matchers(self._tokenizer)
        self._prefixes: OrderedDict[str, Prefix] = OrderedDict()
        self._token_budget = token_budget
        self._pools = Pools(token_budget or self._fitting_budget())
        self._letters: dict[int, bool] = {}
        # Until something has ended rows are few: somebody may wait for a first result.
        self._awaited = True
        self.steps = 0
        self.tokens_fed = 0

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self._loaded.info

    def generate(self, requests: Iterable[Request], started: Started) -> Iterator[Outcome]:
        """See `gristmill.engine.base.Engine.generate`.

        Raises:
            SchemaError: a schema can't be made a grammar.
        """
        # What one call had to halve for want of memory, the next may try again.
        self._step_tokens, self._max_rows = self._limits
        if self._token_budget is None:
            self._pools.budget = self._pools.positions + self._fitting_budget()
        source = iter(requests)
        waiting: deque[_Waiting] = deque()
        rows: list[_Row] = []
        begun: set[int] = set()
        try:
            while True:
                while len(waiting) < LOOKAHEAD and (request := next(source, None)) is not None:
                    ready = self._ready(request)
                    if isinstance(ready, Failed):
                        yield ready
                    else:
                        waiting.append(ready)
                admitted = self._admit(waiting, rows)
                new = [row.request for row in admitted if row.request.key not in begun]
                if new:
                    started(new)
                    begun.update(request.key for request in new)
                rows += admitted
                if not rows:
                    return
                try:
                    ended = self._step(rows)
                except torch.OutOfMemoryError:
                    ended = None
                if ended is None:
                    # Outside the handler: the exception would keep the step's tensors alive.
                    yield from self._halve(rows, waiting)
                    continue
                self._awaited = self._awaited and not ended
                for row, outcome in ended:
                    rows.remove(row)
                    row.pool.free(row.slot)
                    begun.discard(row.request.key)
                    yield outcome
                compact(rows)
        finally:
            for row in rows:
                row.pool.free(row.slot)

    @torch.inference_mode()
    def _admit(self, waiting: deque[_Waiting], rows: Sequence[_Row]) -> list[_Row]:
        admitted: list[_Row] = []
        backlog = sum(len(row.pending) for row in rows)
        most = min(self._max_rows, _FIRST_ROWS) if self._awaited else self._max_rows
        while waiting and len(rows) + len(admitted) < most and backlog < self._step_tokens:
            request, prompt, matcher = waiting[0]
            prefix = self._prefix(request.schema, prompt)
            tail = prompt[len(prefix.tokens) :]
            pool = self._pools.with_room(prefix, len(tail) + request.max_new_tokens, self._max_rows)
            if pool is None:
                break
            waiting.popleft()
            row = self._new_row(request, prompt, tail, pool, matcher)
            backlog += len(row.pending)
            admitted.append(row)
        return admitted

    def _ready(self, request: Request) -> _Waiting | Failed:
        """What an attempt needs before it can enter the model."""
        prompt = prompt_tokens(self._loaded, request)
        if isinstance(prompt, Failed):
            return prompt
        matcher = self._matchers.matcher(request)
        return matcher if isinstance(matcher, Failed) else (request, prompt, matcher)

    def _new_row(self, request: Request, prompt: list[int], tail: list[int], pool: Pool, matcher: LLMatcher) -> _Row:
        sampler = RowSampler(
            request.preset,
            seed_for(self._seed, request.record.id, request.attempt),
            frozenset(prompt) if request.preset.repetition_penalty != 1.0 else frozenset(),
            self._has_letters,
        )
        row = _Row(request, pool, -1, len(prompt), list(tail), matcher, sampler)
        row.slot = pool.take(row)
        self._forward_forced(row)
        return row

    def _forward_forced(self, row: _Row) -> None:
        """Append what the grammar forces, as far as the budget goes."""
        if not self._fast_forward:
            return
        forced = row.matcher.compute_ff_tokens()[: row.request.max_new_tokens - len(row.written)]
        if forced and row.matcher.consume_tokens(forced):
            row.written += forced
            row.pending += forced

    @torch.inference_mode()
    def _step(self, rows: Sequence[_Row]) -> list[tuple[_Row, Outcome]]:
        pieces: list[Piece] = []
        flat: list[int] = []
        positions: list[int] = []
        asking: list[tuple[_Row, int]] = []
        for row, count in self._fed(rows):
            pieces.append(Piece(row.pool, row.slot, row.held, len(flat), count))
            start = len(row.pool.prefix.tokens) + row.held
            flat += row.pending[:count]
            positions += range(start, start + count)
            del row.pending[:count]
            row.held += count
            if not row.pending:
                asking.append((row, len(flat) - 1))
        logits = self._forward(flat, positions, pieces, asking)
        if not asking:
            return []
        chosen = self._choose([row for row, _ in asking], logits)
        return [(row, done) for (row, _), token in zip(asking, chosen, strict=True) if (done := self._took(row, token))]

    def _fed(self, rows: Sequence[_Row]) -> list[tuple[_Row, int]]:
        """How many tokens of which rows go into the next step, those of a pool side by side."""
        fed = []
        room = self._step_tokens
        # Rows that write come first; long prompts take what room they leave, but never nothing.
        for row in sorted(rows, key=lambda row: len(row.pending)):
            count = min(len(row.pending), room)
            if count == 0:
                break
            room -= count
            fed.append((row, count))
        return sorted(fed, key=lambda one: id(one[0].pool))

    def _forward(
        self, flat: list[int], positions: list[int], pieces: Sequence[Piece], asking: Sequence[tuple[_Row, int]]
    ) -> Tensor:
        """Masked logits [asking rows, vocabulary] in float32 after feeding the flat tokens."""
        device = self._loaded.device
        fed = len(flat)
        filling = rounded(fed, _FLAT_STEP) - fed
        flat, positions = flat + [0] * filling, positions + [0] * filling
        bitmask = allocate_token_bitmask(len(asking), self._tokenizer.vocab_size)
        matchers = [(row.matcher, i) for i, (row, _) in enumerate(asking)]
        masks = self._thread.submit(fill_next_token_bitmask_par, self._executor, matchers, bitmask) if asking else None
        self._attention.step = Step(pieces, device)
        try:
            out = self._loaded.model(
                input_ids=torch.tensor([flat], device=device),
                position_ids=torch.tensor([positions], device=device),
                use_cache=False,
                logits_to_keep=torch.tensor([at for _, at in asking], dtype=torch.long, device=device),
            )
        finally:
            self._attention.step = None
            if masks is not None:
                masks.result()
        self.steps += 1
        self.tokens_fed += fed
        logits: Tensor = out.logits[0].float()
        if asking:
            forbid(logits, bitmask)
        return logits

    def _choose(self, rows: Sequence[_Row], logits: Tensor) -> list[int]:
        best: list[int] = logits.argmax(-1).tolist()
        return [
            row.sampler.choose(logits[i]) if row.request.preset.do_sample else best[i] for i, row in enumerate(rows)
        ]

    def _took(self, row: _Row, token: int) -> Outcome | None:
        """Give a row the token that was chosen for it; its outcome if that ends it."""
        row.matcher.consume_token(token)
        if row.matcher.is_error():
            reason = row.matcher.get_error().splitlines()[0]
            return Failed(row.request.key, Fault(FaultCode.ENGINE_ERROR, f"the grammar engine gave up: {reason}"))
        row.written.append(token)
        if token == self._loaded.eos_id or row.matcher.is_stopped():
            return self._candidate(row, FinishReason.STOP)
        row.pending.append(token)
        self._forward_forced(row)
        if row.matcher.is_stopped():
            return self._candidate(row, FinishReason.STOP)
        if len(row.written) >= row.request.max_new_tokens:
            return self._candidate(row, FinishReason.LENGTH)
        if len(row.written) - row.looked >= _LOOK_EVERY:
            row.looked = len(row.written)
            if running_in_place(row.written) or is_filler(self._loaded.tokenizer.decode(row.written[-64:])):
                return self._candidate(row, FinishReason.DEGENERATE)
        return None

    def _candidate(self, row: _Row, reason: FinishReason) -> Candidate:
        eos = self._loaded.eos_id
        written = row.written[:-1] if row.written[-1:] == [eos] else row.written
        text = self._loaded.tokenizer.decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Candidate(row.request.key, text, reason, row.prompt_size, len(written), tuple(written))

    @torch.inference_mode()
    def states(self, sequences: Iterable[Sequence[int]], layers: Sequence[int]) -> Iterator[Tensor]:
        """See `gristmill.reading.states.States`."""
        for batch in batched_by_size(sequences, self._step_tokens):
            device = self._loaded.device
            self._attention.step = Apart([len(tokens) for tokens in batch])
            flat = [token for tokens in batch for token in tokens]
            positions = [i for tokens in batch for i in range(len(tokens))]
            try:
                found = hidden(self._loaded.model, flat, positions, layers, device)
                yield from torch.split(found, [len(tokens) for tokens in batch])
            finally:
                self._attention.step = None

    def _prefix(self, schema: Schema, prompt: list[int]) -> Prefix:
        """The prefix that this prompt shares with others of its schema, computed where it is not kept yet."""
        key = schema.fingerprint
        if key not in self._prefixes:
            self._prefixes[key] = self._computed(self._common(schema))
            while len(self._prefixes) > 1 and sum(p.bytes for p in self._prefixes.values()) > self._prefix_bytes():
                old, prefix = self._prefixes.popitem(last=False)
                log.debug("prefix of %s given up", old)
                self._pools.give_up(prefix)
        self._prefixes.move_to_end(key)
        prefix = self._prefixes[key]
        fits = len(prompt) > len(prefix.tokens) and tuple(prompt[: len(prefix.tokens)]) == prefix.tokens
        return prefix if fits else Prefix(())

    def _common(self, schema: Schema) -> list[int]:
        """What prompts of a schema begin with, whatever the record, without the token at the border."""
        names = {name for _, name, _, _ in Formatter().parse(schema.template) if name}
        prompts = []
        for text in ("A", "7"):
            record = Record("", text, dict.fromkeys(names, text))
            turns = messages_for(schema, record)
            if not isinstance(turns, list):
                return []
            if chooses(schema):
                turns = [turns[0], turns[-1]]
            prompts.append(self._loaded.tokenizer(self._loaded.render(turns), add_special_tokens=False)["input_ids"])
        same = [a for a, _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*prompts, strict=False))]
        # The text's first characters may merge with the last token before them.
        return same[:-1] if len(same) > _SHORTEST_PREFIX else []

    @torch.inference_mode()
    def _computed(self, tokens: list[int]) -> Prefix:
        if not tokens:
            return Prefix(())
        pool = Pool(Prefix(()), len(tokens))
        pool.grow(1)
        slot = pool.take(self)
        for start in range(0, len(tokens), self._step_tokens):
            piece = tokens[start : start + self._step_tokens]
            places = list(range(start, start + len(piece)))
            self._forward(piece, places, [Piece(pool, slot, start, 0, len(piece))], [])
        return pool.as_prefix(slot, tokens)

    def _halve(self, rows: list[_Row], waiting: deque[_Waiting]) -> Iterator[Outcome]:
        """After running out of memory: half of the rows start again later, with half the budget."""
        if self._loaded.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(rows) == 1:
            (row,) = rows
            rows.clear()
            row.pool.free(row.slot)
            message = f"out of memory with this record alone ({row.prompt_size} prompt tokens)"
            yield Failed(row.request.key, Fault(FaultCode.OUT_OF_MEMORY, message))
            return
        self._max_rows = max(1, len(rows) // 2)
        self._step_tokens = max(64, self._step_tokens // 2)
        log.warning(
            "out of memory with %d rows; going on with %d", len(rows), self._max_rows, extra={"action": "batch_halved"}
        )
        # A step may have been half done, so every row starts anew; its randomness is its own and comes out the same.
        for row in reversed(rows):
            row.pool.free(row.slot)
            ready = self._ready(row.request)
            if isinstance(ready, Failed):
                yield ready
            else:
                waiting.appendleft(ready)
        rows.clear()
        self._pools.clear()

    def _fitting_budget(self) -> int:
        c = self._loaded.model.config
        head = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        each = 2 * c.num_hidden_layers * c.num_key_value_heads * head * self._loaded.model.dtype.itemsize
        return max(4096, int(free_bytes(self._loaded.device) / 2 / each))

    def _prefix_bytes(self) -> int:
        return free_bytes(self._loaded.device) // 8

    def _has_letters(self, token: int) -> bool:
        if token not in self._letters:
            self._letters[token] = any(c.isalpha() for c in self._loaded.tokenizer.decode([token]))
        return self._letters[token]
