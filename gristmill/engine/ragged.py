"""Ragged attention: rows of any length side by side, without padding in the linear layers.

All new tokens of all rows go through the model as one flat row [1, tokens]. The attention function that transformers
calls in every layer (`AttentionInterface`) writes their keys and values into per-row slots and attends group by group:
rows with few new tokens padded together, long pieces of prompt one by one. What all rows of a pool have in common, the
prefix, is stored once; attention over it is one product for all tokens, merged with that over a row's own slot.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gristmill.engine.attention import additive, attend, merged
from gristmill.engine.slots import Pool

_NARROW, _LITTLE = 2, 8
"""Rows with at most so many new tokens attend together, padded to the longest of them: the narrow ones, which are
nearly all, over one view of their slots, the little ones over slots picked out. The others attend one by one."""


@dataclass(frozen=True)
class Piece:
    """New tokens of one row in a step: their slot, how many positions it held before, and where they stand in the
    flat row."""

    pool: Pool
    slot: int
    before: int
    start: int
    count: int


@dataclass
class _Together:
    """Rows of a pool with few new tokens each, padded to `width` queries.

    `slots` are the pool's slots as one view (a slice) or picked out (a tensor). `index` [rows, width] says where a
    query stands in the pool's tokens, `real` which are queries and not padding, `positions` where each stands in its
    slot; `at` are row and column of those that are real, `tokens` where they stand in the pool's tokens.
    """

    pool: Pool
    slots: slice | Tensor
    length: int
    index: Tensor
    real: Tensor
    positions: Tensor
    at: tuple[Tensor, ...]
    tokens: Tensor
    masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, share: int, dtype: torch.dtype) -> Tensor:
        """Additive mask [rows, 1, width * share, length], for a sliding window of so many positions or none."""
        if window not in self.masks:
            seen = _causal(self.positions, self.length, window)
            # A padded query sees position 0, so that its softmax is a number; nobody reads its result.
            seen[..., 0] |= ~self.real
            self.masks[window] = additive(seen.repeat_interleave(share, 1).unsqueeze(1), dtype)
        return self.masks[window]

    def attend(
        self, layer: int, query: Tensor, scaling: float, window: int | None, cap: float | None
    ) -> tuple[Tensor, Tensor]:
        """What the rows' queries of [tokens, key heads, share, head size] see in their own slots: [queries, heads, head
        size], and the sums of weights [queries, heads]."""
        keys, values = self.pool.read(layer, self.slots, self.length)
        rows, width = self.index.shape
        _, key_heads, share, size = query.shape
        asked = query[self.index].transpose(1, 2).reshape(rows, key_heads, width * share, size)
        mask = self.mask(window, share, query.dtype)
        out, sums = attend(asked, keys, values, scaling, mask, cap)
        out = out.view(rows, key_heads, width, share, size).transpose(1, 2)[self.at]
        sums = sums.reshape(rows, key_heads, width, share).transpose(1, 2)[self.at]
        return out.flatten(1, 2), sums.flatten(1, 2)


@dataclass
class _Alone:
    """A row with many new tokens, which are a stretch of the pool's `tokens` and stand at `positions` in its slot."""

    pool: Pool
    slot: int
    length: int
    positions: Tensor
    tokens: slice
    masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, share: int, dtype: torch.dtype) -> Tensor:
        """Additive mask [1, 1, tokens * share, length], for a sliding window of so many positions or none."""
        if window not in self.masks:
            seen = _causal(self.positions, self.length, window)
            self.masks[window] = additive(seen.repeat_interleave(share, 0)[None, None], dtype)
        return self.masks[window]

    def attend(
        self, layer: int, query: Tensor, scaling: float, window: int | None, cap: float | None
    ) -> tuple[Tensor, Tensor]:
        """As `_Together.attend`."""
        keys, values = self.pool.read(layer, slice(self.slot, self.slot + 1), self.length)
        mask = self.mask(window, query.shape[2], query.dtype)
        return _over_the_same(query[self.tokens], keys, values, scaling, mask, cap)


@dataclass
class _Shared:
    """The tokens of a step whose rows are in one pool: a stretch of the flat row, their places in the pool's slots, and
    how far behind the prefix each stands."""

    pool: Pool
    tokens: slice
    places: Tensor
    positions: Tensor
    groups: list[_Together | _Alone]
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None, share: int, dtype: torch.dtype) -> Tensor | None:
        """Additive mask [1, 1, tokens * share, prefix], None where every token sees all of the prefix."""
        if window not in self.masks:
            size = len(self.pool.prefix.tokens)
            mask = None
            if window and int(self.positions.max()) + size >= window:
                before = torch.arange(size, device=self.positions.device) - size
                seen = before > self.positions.unsqueeze(-1) - window
                mask = additive(seen.repeat_interleave(share, 0)[None, None], dtype)
            self.masks[window] = mask
        return self.masks[window]

    def attend(self, layer: int, query: Tensor, scaling: float, window: int | None, cap: float | None) -> Tensor:
        """Attention of the tokens [tokens, key heads, share, head size] over all that lies before them: [tokens,
        heads, head size]."""
        prefix = self.pool.prefix
        out = query.new_empty((query.shape[0], query.shape[1] * query.shape[2], query.shape[3]))
        sums = torch.empty(out.shape[:2], device=out.device)
        for group in self.groups:
            out[group.tokens], sums[group.tokens] = group.attend(layer, query, scaling, window, cap)
        if not prefix.keys:
            return out
        mask = self.mask(window, query.shape[2], query.dtype)
        far, far_sums = _over_the_same(query, prefix.keys[layer][None], prefix.values[layer][None], scaling, mask, cap)
        if mask is not None:
            # The kernel gives a query that sees nothing a sum of its own.
            far_sums = far_sums.masked_fill((mask[0, 0, :: query.shape[2]].amax(-1) < 0).unsqueeze(-1), float("-inf"))
        return merged(out, sums, far, far_sums).to(query.dtype)


def _over_the_same(
    query: Tensor, keys: Tensor, values: Tensor, scaling: float, mask: Tensor | None, cap: float | None
) -> tuple[Tensor, Tensor]:
    """Attention of all queries [tokens, key heads, share, head size] over the same keys [1, key heads, keys, head
    size]: [tokens, heads, head size], and the sums of weights [tokens, heads]."""
    tokens, key_heads, share, size = query.shape
    folded = query.transpose(0, 1).reshape(1, key_heads, tokens * share, size)
    out, sums = attend(folded, keys, values, scaling, mask, cap)
    out = out.view(key_heads, tokens, share, size).transpose(0, 1)
    sums = sums.reshape(key_heads, tokens, share).transpose(0, 1)
    return out.flatten(1, 2), sums.flatten(1, 2)


def _causal(positions: Tensor, length: int, window: int | None) -> Tensor:
    """Which of `length` keys a query at each of [...] positions sees: [..., length]."""
    own = torch.arange(length, device=positions.device)
    queries = positions.unsqueeze(-1)
    seen = own <= queries
    if window:
        seen &= own > queries - window
    return seen


class Step:
    """One pass of new tokens through the model: who attends to what. Built once, used by every layer.

    The pieces of a pool stand side by side in the flat row.
    """

    def __init__(self, pieces: Sequence[Piece], device: torch.device) -> None:
        self._shared = [_shared(list(mine), device) for _, mine in groupby(pieces, key=lambda piece: id(piece.pool))]

    def attend(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float,
        window: int | None,
        cap: float | None,
    ) -> Tensor:
        """Attention of one layer. Query [1, heads, tokens, head size], key and value with key heads; the result is
        [1, tokens, heads, head size]."""
        _, heads, tokens, size = query.shape
        key_heads = key.shape[1]
        flat = query[0].transpose(0, 1).reshape(tokens, key_heads, heads // key_heads, size)
        new_keys, new_values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        # Tokens that belong to no piece fill the flat row up; they come out as zeros.
        result = query.new_zeros((1, tokens, heads, size))
        for shared in self._shared:
            mine = shared.tokens
            shared.pool.write(layer, shared.places, new_keys[mine], new_values[mine])
            result[0, mine] = shared.attend(layer, flat[mine], scaling, window, cap)
        return result


def _shared(pieces: Sequence[Piece], device: torch.device) -> _Shared:
    pool, first = pieces[0].pool, pieces[0].start
    positions = [piece.before + i for piece in pieces for i in range(piece.count)]
    places = [piece.slot * pool.capacity + piece.before + i for piece in pieces for i in range(piece.count)]
    where = torch.tensor([positions, places], device=device)
    narrow = {piece.slot: piece for piece in pieces if piece.count <= _NARROW}
    little = [piece for piece in pieces if _NARROW < piece.count <= _LITTLE]
    groups: list[_Together | _Alone] = []
    if narrow:
        rows = min(pool.slots, rounded(max(narrow) + 1, 8))
        groups.append(_together(slice(0, rows), narrow, rows, first, device))
    if little:
        picked = torch.tensor([piece.slot for piece in little], device=device)
        groups.append(_together(picked, dict(enumerate(little)), len(little), first, device))
    for piece in pieces:
        if piece.count > _LITTLE:
            tokens = slice(piece.start - first, piece.start - first + piece.count)
            length = piece.before + piece.count
            groups.append(_Alone(pool, piece.slot, length, where[0, tokens], tokens))
    return _Shared(pool, slice(first, first + len(positions)), where[1], where[0], groups)


def _together(
    slots: slice | Tensor, pieces: dict[int, Piece], rows: int, first: int, device: torch.device
) -> _Together:
    pool = next(iter(pieces.values())).pool
    width = 1 << (max(piece.count for piece in pieces.values()) - 1).bit_length()
    index = [[0] * width for _ in range(rows)]
    real = [[False] * width for _ in range(rows)]
    positions = [[0] * width for _ in range(rows)]
    for row, piece in sorted(pieces.items()):
        for i in range(piece.count):
            index[row][i], real[row][i], positions[row][i] = piece.start - first + i, True, piece.before + i
    length = min(pool.capacity, rounded(max(p.before + p.count for p in pieces.values()), 64))
    where, there = torch.tensor(index, device=device), torch.tensor(real, device=device)
    at = there.nonzero(as_tuple=True)
    return _Together(pool, slots, length, where, there, torch.tensor(positions, device=device), at, where[at])


class Apart:
    """A step over whole sequences that know nothing of each other and leave nothing behind: `lengths` in tokens."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)

    def attend(
        self,
        _layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scaling: float,
        window: int | None,
        cap: float | None,
    ) -> Tensor:
        """Causal attention within each sequence; see `Step.attend`."""
        queries, keys, values = (torch.split(t, self._lengths, dim=2) for t in (query, key, value))
        out = [self._one(q, k, v, scaling, window, cap) for q, k, v in zip(queries, keys, values, strict=True)]
        return torch.cat(out, dim=2).transpose(1, 2)

    def _one(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None, cap: float | None
    ) -> Tensor:
        size = query.shape[2]
        if cap is None and (not window or size <= window):
            return functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, scale=scaling, enable_gqa=True
            )
        at = torch.arange(size, device=query.device)
        seen = at <= at.unsqueeze(-1)
        if window:
            seen &= at > at.unsqueeze(-1) - window
        share = query.shape[1] // key.shape[1]
        mask = additive(seen.repeat_interleave(share, 0)[None, None], query.dtype)
        folded = query.view(1, -1, share, *query.shape[2:]).transpose(2, 3).flatten(2, 3)
        out, _ = attend(folded, key, value, scaling, mask, cap)
        return out.view(1, -1, size, share, out.shape[3]).transpose(2, 3).flatten(1, 2)


def rounded(number: int, step: int) -> int:
    """`number` raised to a multiple of `step`.

    Matrix kernels are prepared for each shape anew, and in bfloat16 on a CPU that takes longer than the product; so
    shapes are kept to few.
    """
    return -(-number // step) * step


class RaggedAttention:
    """The attention function of one engine, under a name of its own in transformers' registry.

    `step` must be set before the model is called.
    """

    def __init__(self, name: str) -> None:
        from transformers import AttentionInterface

        self.step: Step | Apart | None = None
        AttentionInterface.register(name, self._attention)

    def _attention(
        self,
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        **given: Any,
    ) -> tuple[Tensor, None]:
        if attention_mask is not None or given.get("s_aux") is not None:
            raise NotImplementedError("this model's attention needs a mask or sinks of its own")
        assert self.step is not None  # noqa: S101 - the engine sets it before each pass
        factor = scaling if scaling is not None else query.shape[-1] ** -0.5
        out = self.step.attend(module.layer_idx, query, key, value, factor, sliding_window, softcap)
        return out, None
