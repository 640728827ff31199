"""The reference way: Outlines over transformers' `generate`, in left-padded batches of records of like length."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from llguidance import LLMatcher
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from outlines.backends.llguidance import LLGuidanceBackend, LLGuidanceLogitsProcessor
from outlines.models import from_transformers
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from gristmill.engine.base import Candidate, Failed, FinishReason, ModelInfo, Outcome, Request, Started
from gristmill.engine.grammars import Matchers
from gristmill.engine.hidden import hidden
from gristmill.engine.loading import TOKEN_BUDGET, LoadedModel, greedy_config
from gristmill.engine.masks import forbid
from gristmill.engine.prompting import prompt_tokens
from gristmill.engine.sampling import RowSampler, is_filler, running_in_place, seed_for
from gristmill.faults import Fault, FaultCode

log = logging.getLogger(__name__)

WINDOW = 256
"""Requests looked at together, to sort them by length."""

_LOOK_EVERY = 8
"""Steps between two looks for rows that run in place."""


@dataclass(frozen=True, slots=True)
class _Row:
    request: Request
    prompt: list[int]
    matcher: LLMatcher

    @property
    def tokens(self) -> int:
        """Positions that the row may come to occupy."""
        return len(self.prompt) + self.request.max_new_tokens


class ReferenceEngine:
    """Outlines' llguidance processor over `generate`; slow, plain, and what the fast engine is held against.

    `token_budget` bounds rows times the longest row's positions of a batch.
    """

    def __init__(self, loaded: LoadedModel, *, seed: int = 0, token_budget: int | None = None) -> None:
        self._loaded = loaded
        self._seed = seed
        self._token_budget = token_budget or TOKEN_BUDGET
        self._backend = LLGuidanceBackend(from_transformers(loaded.model, loaded.tokenizer))
        self._matchers = Matchers(self._backend.llg_tokenizer)
        self._letters: dict[int, bool] = {}

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self._loaded.info

    def generate(self, requests: Iterable[Request], started: Started) -> Iterator[Outcome]:
        """See `gristmill.engine.base.Engine.generate`.

        Raises:
            SchemaError: a schema can't be made a grammar.
        """
        source = iter(requests)
        while window := list(islice(source, WINDOW)):
            rows = []
            for request in window:
                prompt = prompt_tokens(self._loaded, request)
                matcher = prompt if isinstance(prompt, Failed) else self._matchers.matcher(request)
                if isinstance(prompt, Failed):
                    yield prompt
                elif isinstance(matcher, Failed):
                    yield matcher
                else:
                    rows.append(_Row(request, prompt, matcher))
            for batch in batches(rows, self._token_budget):
                started([row.request for row in batch])
                yield from self._run(batch)

    @torch.inference_mode()
    def states(self, sequences: Iterable[Sequence[int]], layers: Sequence[int]) -> Iterator[Tensor]:
        """See `gristmill.reading.states.States`."""
        for tokens in sequences:
            yield hidden(self._loaded.model, tokens, range(len(tokens)), layers, self._loaded.device)

    def _run(self, batch: Sequence[_Row]) -> Iterator[Outcome]:
        try:
            outcomes = self._generate(batch)
        except torch.OutOfMemoryError:
            outcomes = None
        except RuntimeError as error:
            if "not enough memory" not in str(error):
                raise
            outcomes = None
        # Outside the handler: the exception would keep the tensors of the failed batch alive.
        if outcomes is not None:
            yield from outcomes
            return
        if self._loaded.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(batch) == 1:
            fault = Fault(FaultCode.OUT_OF_MEMORY, f"out of memory with this record alone ({batch[0].tokens} tokens)")
            yield Failed(batch[0].request.key, fault)
            return
        log.warning(
            "out of memory with %d rows; going on with half of them", len(batch), extra={"action": "batch_halved"}
        )
        middle = len(batch) // 2
        yield from self._run(batch[:middle])
        yield from self._run(batch[middle:])

    @torch.inference_mode()
    def _generate(self, batch: Sequence[_Row]) -> list[Outcome]:
        first = batch[0].request
        eos, pad, device = self._loaded.eos_id, self._loaded.pad_id, self._loaded.device
        width = max(len(row.prompt) for row in batch)
        ids = torch.tensor([[pad] * (width - len(row.prompt)) + row.prompt for row in batch], device=device)
        mask = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in batch], device=device)
        guide = _Guide([row.matcher.deep_copy() for row in batch], self._backend.llg_tokenizer, eos)
        samplers = [
            RowSampler(
                row.request.preset,
                seed_for(self._seed, row.request.record.id, row.request.attempt),
                frozenset(row.prompt),
                self._has_letters,
            )
            for row in batch
        ]
        in_place = _InPlace(width, self._loaded.tokenizer, guide)
        out = self._loaded.model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=greedy_config(first.max_new_tokens, eos, pad),
            logits_processor=LogitsProcessorList([guide, _Choose(samplers, guide)]),
            stopping_criteria=StoppingCriteriaList([in_place]),
        )
        new = out[:, width:].tolist()
        return [self._outcome(row, new[i], guide, i, in_place.rows) for i, row in enumerate(batch)]

    def _outcome(self, row: _Row, tokens: list[int], guide: "_Guide", at: int, in_place: dict[int, int]) -> Outcome:
        if at in guide.errors:
            message = f"the grammar engine gave up: {guide.errors[at]}"
            return Failed(row.request.key, Fault(FaultCode.ENGINE_ERROR, message))
        eos = self._loaded.eos_id
        if eos in tokens:
            tokens, reason = tokens[: tokens.index(eos)], FinishReason.STOP
        elif at in in_place:
            tokens, reason = tokens[: in_place[at]], FinishReason.DEGENERATE
        else:
            # The last token was not shown to the matcher any more; it may have completed the answer.
            whole = guide.ll_matchers[at].consume_token(tokens[-1]) and guide.ll_matchers[at].is_stopped()
            reason = FinishReason.STOP if whole else FinishReason.LENGTH
        text = self._loaded.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Candidate(row.request.key, text, reason, len(row.prompt), len(tokens), tuple(tokens))

    def _has_letters(self, token: int) -> bool:
        if token not in self._letters:
            self._letters[token] = any(c.isalpha() for c in self._loaded.tokenizer.decode([token]))
        return self._letters[token]


def batches(rows: Sequence[_Row], token_budget: int) -> Iterator[list[_Row]]:
    """Rows of one schema, preset and budget together, sorted by length, cut where the padded size would exceed
    the budget; a row larger than the budget goes alone."""

    def kind(row: _Row) -> tuple[str, str, int]:
        r = row.request
        return r.schema.fingerprint, r.preset.name, r.max_new_tokens

    batch: list[_Row] = []
    for row in sorted(rows, key=lambda row: (kind(row), len(row.prompt), row.request.key)):
        if batch and (kind(row) != kind(batch[0]) or (len(batch) + 1) * row.tokens > token_budget):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


class _Guide(LLGuidanceLogitsProcessor, LogitsProcessor):
    """Outlines' processor with one transfer of the masks a step, and rows that have ended left alone.

    Outlines' own moves the mask between devices for each row, compiles a kernel at the first step, and feeds the
    padding of ended rows to their matchers, which then report errors.
    """

    def __init__(self, matchers: list[LLMatcher], tokenizer: Any, eos_id: int) -> None:
        super().__init__("", tokenizer, "torch")
        self._eos_id = eos_id
        self._given = matchers
        self.bitmask: Any = None
        self.errors: dict[int, str] = {}
        self.ended: set[int] = set()

    def process_logits(self, input_ids: Any, logits: Any) -> Any:
        """Mask logits, a tensor of shape [rows, vocabulary], in place; token ids are [rows, positions]."""
        if self.is_first_token:
            self.ll_matchers = self._given
            self.bitmask = allocate_token_bitmask(len(input_ids), self.llg_tokenizer.vocab_size)
            self.is_first_token = False
        else:
            for i, token in enumerate(input_ids[:, -1].tolist()):
                if i in self.ended:
                    continue
                self.ll_matchers[i].consume_token(token)
                if self.ll_matchers[i].is_error():
                    self.errors[i] = self.ll_matchers[i].get_error().splitlines()[0]
                if token == self._eos_id or i in self.errors:
                    self.ended.add(i)
        for i, matcher in enumerate(self.ll_matchers):
            if i not in self.ended:
                fill_next_token_bitmask(matcher, self.bitmask, i)
        forbid(logits, self.bitmask)
        return logits


class _Choose(LogitsProcessor):
    """Leaves one token per row, chosen by the row's sampler, so that greedy decoding takes it."""

    def __init__(self, samplers: Sequence[RowSampler], guide: _Guide) -> None:
        self._samplers = samplers
        self._guide = guide

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002 - transformers' signature
        chosen = torch.full_like(scores, float("-inf"))
        for i, sampler in enumerate(self._samplers):
            if i in self._guide.ended:
                chosen[i, 0] = 0.0
            else:
                chosen[i, sampler.choose(scores[i].float())] = 0.0
        return chosen


class _InPlace(StoppingCriteria):
    """Ends rows that run in place, and those whose matcher gave up. `rows` holds how many tokens the former had."""

    def __init__(self, prompt_width: int, tokenizer: Any, guide: _Guide) -> None:
        self._width = prompt_width
        self._tokenizer = tokenizer
        self._guide = guide
        self.rows: dict[int, int] = {}

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:  # noqa: ARG002 - transformers'
        count = input_ids.shape[1] - self._width
        if count % _LOOK_EVERY == 0 and count >= _LOOK_EVERY:
            for i, tokens in enumerate(input_ids[:, self._width :].tolist()):
                if i in self._guide.ended or i in self.rows:
                    continue
                tail = tokens[-64:]
                if running_in_place(tokens) or is_filler(self._tokenizer.decode(tail)):
                    self.rows[i] = count
                    self._guide.ended.add(i)
        stopped = self.rows.keys() | self._guide.errors.keys()
        return torch.tensor([i in stopped for i in range(len(input_ids))], device=input_ids.device)
