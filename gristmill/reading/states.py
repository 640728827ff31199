"""States of words: what the model makes of each word of a text once it has seen the whole of it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from gristmill.verbatim import Verbatim, Words, words_of

_DEPTHS = (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6)
"""The layers whose states are taken, as shares of the model's depth."""

WINDOW = 384
_OVERLAP = 96
"""A text is read in windows of so many tokens, of which each has so many in common with the next."""


class States(Protocol):
    """Something that can show a model's hidden states."""

    def states(self, sequences: Iterable[Sequence[int]], layers: Sequence[int]) -> Iterator[Tensor]:
        """For each sequence of token ids the states [tokens, layers * width], float32, normalised for each layer."""


@dataclass(frozen=True)
class WordStates:
    """A text's units (`words`), which of them are words (positions into the units), and a vector for each of these
    [words, features] on the CPU; `tokens` is how many were fed for it."""

    words: Words
    places: tuple[int, ...]
    vectors: Tensor
    tokens: int


@dataclass(frozen=True)
class _Window:
    tokens: list[int]
    # For each word of the window: its position among the text's words, and its tokens.
    words: list[tuple[int, list[int]]]


def depths(layers: int) -> list[int]:
    """The layers that are read of a model with so many."""
    return sorted({max(1, round(share * layers)) for share in _DEPTHS})


def word_states(texts: Sequence[str], source: States, tokenizer: Any, layers: Sequence[int]) -> list[WordStates]:
    """The states of the words of each text.

    A text stands twice in what the model sees, and the second one is read: there every word is seen with all of the
    text behind it, though the model looks back only (Springer et al. 2024, https://arxiv.org/abs/2402.15449).
    """
    cut = [words_of(text, Verbatim()) for text in texts]
    windows = [_windows(text, words, tokenizer) for text, words in zip(texts, cut, strict=True)]
    found = source.states((window.tokens for each in windows for window in each), layers)
    result = []
    for words, each in zip(cut, windows, strict=True):
        places = tuple(i for i, space in enumerate(words.spaces) if not space)
        vectors: list[Tensor | None] = [None] * len(places)
        depth_of = [-1] * len(places)
        for window in each:
            states = next(found).cpu()
            for at, (word, tokens) in enumerate(window.words):
                # Of two windows that hold a word, the one in whose middle it is knows more about it.
                depth = min(at, len(window.words) - 1 - at)
                if depth > depth_of[word]:
                    depth_of[word] = depth
                    vectors[word] = states[tokens].mean(0)
        known = [vector for vector in vectors if vector is not None]
        stacked = torch.stack(known) if known else torch.zeros((0, 1))
        result.append(WordStates(words, places, stacked, sum(len(window.tokens) for window in each)))
    return result


def _windows(text: str, words: Words, tokenizer: Any) -> list[_Window]:
    starts = [start for start, space in zip(words.starts, words.spaces, strict=True) if not space]
    ends = [end for end, space in zip(words.ends, words.spaces, strict=True) if not space]
    if not starts:
        return []
    encoded = _encoded(text, tokenizer)
    sizes = _tokens_of(starts, ends, encoded["offset_mapping"])
    windows, first = [], 0
    while True:
        last, size = first, 0
        while last < len(starts) and (size + len(sizes[last]) <= WINDOW or last == first):
            size += len(sizes[last])
            last += 1
        windows.append(_window(text, starts, ends, first, last, tokenizer))
        if last == len(starts):
            return windows
        shared = 0
        following = last
        while following > first + 1 and shared < _OVERLAP:
            following -= 1
            shared += len(sizes[following])
        first = following


def _window(text: str, starts: list[int], ends: list[int], first: int, last: int, tokenizer: Any) -> _Window:
    begin, end = starts[first], ends[last - 1]
    piece = text[begin:end]
    twice = f"{piece}\n{piece}"
    shift = len(piece) + 1 - begin
    encoded = _encoded(twice, tokenizer)
    moved = [start + shift for start in starts[first:last]], [end + shift for end in ends[first:last]]
    tokens = _tokens_of(*moved, encoded["offset_mapping"])
    return _Window(list(encoded["input_ids"]), [(first + i, mine) for i, mine in enumerate(tokens)])


def _encoded(text: str, tokenizer: Any) -> Any:
    """Token ids and offsets; the name of a special token in a text is letters like any others."""
    return tokenizer(
        text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True, verbose=False
    )


def _tokens_of(starts: list[int], ends: list[int], offsets: Sequence[tuple[int, int]]) -> list[list[int]]:
    """For each stretch of characters the tokens that have a part of it; both are in order."""
    result = []
    at = 0
    for start, end in zip(starts, ends, strict=True):
        while at < len(offsets) and offsets[at][1] <= start:
            at += 1
        mine, i = [], at
        while i < len(offsets) and offsets[i][0] < end:
            mine.append(i)
            i += 1
        # A character of several tokens, all of which have the same offsets, ends a scan early; never leave a word out.
        result.append(mine or [min(at, len(offsets) - 1)])
    return result
