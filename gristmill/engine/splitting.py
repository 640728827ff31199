"""Long texts: cut where a paragraph or a sentence ends, answered part by part, and merged field by field."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from gristmill.engine.base import Candidate, Failed, FinishReason, ModelInfo, Outcome, Request, Started
from gristmill.engine.loading import LoadedModel
from gristmill.engine.prompting import prompt_tokens
from gristmill.engine.reading import Inner
from gristmill.faults import Fault, FaultCode
from gristmill.grammar.constraint import constraint_for
from gristmill.options import MergeRule, Split

_SPARE = 0.9
"""A part is filled to this share only: how many tokens it has is estimated from those of the whole text."""

_PARAGRAPH = re.compile(r"\n\s*\n\s*")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])")
_BLANK = re.compile(r"\s+")


@dataclass
class _Whole:
    """A request whose parts are in the model: their outcomes, by part."""

    request: Request
    parts: int
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    begun: bool = False


class SplittingEngine:
    """Hands requests to an engine, those with texts that are too long in parts where their schema allows it."""

    def __init__(self, inner: Inner, loaded: LoadedModel) -> None:
        self._inner = inner
        self._loaded = loaded

    @property
    def model(self) -> ModelInfo:
        """What is loaded."""
        return self._inner.model

    def states(self, sequences: Iterable[Sequence[int]], layers: Sequence[int]) -> Iterator[Tensor]:
        """See `gristmill.reading.states.States`."""
        return self._inner.states(sequences, layers)

    def generate(self, requests: Iterable[Request], started: Started) -> Iterator[Outcome]:
        """See `gristmill.engine.base.Engine.generate`."""
        asked: dict[int, tuple[_Whole, int]] = {}
        keys = itertools.count()

        def parts() -> Iterator[Request]:
            for request in requests:
                request, texts = self._parts(request)
                whole = _Whole(request, len(texts))
                for number, text in enumerate(texts):
                    key = next(keys)
                    asked[key] = (whole, number)
                    yield replace(request, key=key, record=replace(request.record, text=text))

        def begun(batch: Sequence[Request]) -> None:
            new = []
            for whole, _ in (asked[part.key] for part in batch):
                if not whole.begun:
                    whole.begun = True
                    new.append(whole.request)
            if new:
                started(new)

        for outcome in self._inner.generate(parts(), begun):
            whole, number = asked.pop(outcome.key)
            whole.outcomes[number] = outcome
            if len(whole.outcomes) == whole.parts:
                yield _merged(whole)

    def _parts(self, request: Request) -> tuple[Request, list[str]]:
        """A request and the texts of its parts. The merged answer of parts can't be repaired part by part; it is asked
        for anew."""
        texts = self._texts(request)
        if len(texts) == 1 and request.repair is not None:
            anew = replace(request, repair=None, known=None)
            again = self._texts(anew)
            return (anew, again) if len(again) > 1 else (request, texts)
        return request, texts

    def _texts(self, request: Request) -> list[str]:
        split, text = request.schema.options.split, request.record.text
        if split is None or request.record.messages or request.repair is not None:
            return [text]
        tokens = prompt_tokens(self._loaded, request)
        if not isinstance(tokens, Failed) or tokens.fault.code is not FaultCode.TOO_LONG:
            return [text]
        bare = prompt_tokens(self._loaded, replace(request, record=replace(request.record, text="a")))
        if isinstance(bare, Failed):
            return [text]
        room = self._loaded.info.context_tokens - request.max_new_tokens - len(bare)
        whole = len(self._loaded.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        most = int(room * _SPARE * len(text) / whole)
        if most <= split.overlap:
            return [text]
        return [text[start:end] for start, end in cut(text, most, split.overlap)]


def cut(text: str, most: int, overlap: int) -> list[tuple[int, int]]:
    """Parts of a text, as [start, end) in characters.

    Each has at most `most` characters, and each but the first about `overlap` of the one before it. A part ends where a
    paragraph does, or a sentence, or a word, or, where there is none, anywhere.

    Raises:
        ValueError: the overlap is as long as a part.
    """
    if overlap >= most:
        raise ValueError(f"overlap={overlap} leaves nothing new in parts of {most} characters; use less")
    parts, start = [], 0
    while len(text) - start > most:
        end = _end(text, start + max(most // 2, overlap + 1), start + most)
        parts.append((start, end))
        start = _start(text, max(end - overlap, start + 1), end)
    return [*parts, (start, len(text))]


def _end(text: str, least: int, most: int) -> int:
    """The last good place to end a part between two positions."""
    for pattern in (_PARAGRAPH, _SENTENCE, _BLANK):
        places = [match.end() for match in pattern.finditer(text, least, most)]
        if places:
            return places[-1]
    return most


def _start(text: str, least: int, most: int) -> int:
    """The first good place to begin the next part between two positions."""
    for pattern in (_SENTENCE, _BLANK):
        match = pattern.search(text, least, most)
        if match:
            return match.end()
    return least


def _merged(whole: _Whole) -> Outcome:
    outcomes = [whole.outcomes[number] for number in range(whole.parts)]
    key = whole.request.key
    bad = next((o for o in outcomes if isinstance(o, Failed) or o.finish_reason is not FinishReason.STOP), outcomes[0])
    if isinstance(bad, Failed) or bad.finish_reason is not FinishReason.STOP or len(outcomes) == 1:
        return replace(bad, key=key)
    candidates = [outcome for outcome in outcomes if isinstance(outcome, Candidate)]
    constraint, split = constraint_for(whole.request.schema), whole.request.schema.options.split or Split()
    try:
        values = [constraint.spelling.read(candidate.text) for candidate in candidates]
        text = constraint.spelling.spell(merge(values, split))
    except Exception as error:  # noqa: BLE001 - a rule may be a user's function and raise anything
        kind = type(error).__name__
        detail = {"loc": [], "type": kind, "msg": f"merging the parts raised {kind}"}
        message = f"the answers to the {len(candidates)} parts of the text could not be merged: {kind}"
        return Failed(key, Fault(FaultCode.INVALID, message, (detail,)))
    asked = sum(candidate.prompt_tokens for candidate in candidates)
    written = sum(candidate.completion_tokens for candidate in candidates)
    return Candidate(key, text, FinishReason.STOP, asked, written)


def merge(values: Sequence[Any], split: Split) -> Any:
    """One answer out of those of the parts, field by field; values that are no objects: the first."""
    objects = [value for value in values if isinstance(value, Mapping)]
    if not objects:
        return values[0]
    names = list(dict.fromkeys(name for value in objects for name in value))
    merged = {}
    for name in names:
        found = [value[name] for value in objects if value.get(name) is not None]
        merged[name] = _one(found, split.merge.get(name, split.otherwise)) if found else None
    return merged


def _one(values: list[Any], rule: MergeRule | None) -> Any:
    lists = all(isinstance(value, list) for value in values)
    match rule:
        case None:
            return _one(values, "union" if lists else "first")
        case "first":
            return values[0]
        case "longest":
            return max(
                values, key=lambda value: len(value) if isinstance(value, str | list) else len(json.dumps(value))
            )
        case "most_frequent":
            spelt = [json.dumps(value, sort_keys=True) for value in values]
            return values[spelt.index(Counter(spelt).most_common(1)[0][0])]
        case "union":
            items = [item for value in values for item in (value if isinstance(value, list) else [value])]
            # JSON tells 1 and true apart, Python's equality does not.
            union = list({json.dumps(item, sort_keys=True): item for item in items}.values())
            return union if lists else union[0]
        case _:
            return rule(values)
