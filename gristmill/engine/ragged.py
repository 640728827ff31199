"""Ragged attention: rows of any length side by side, without padding in the linear layers.

All new tokens of all rows go through the model as one flat row [1, tokens]. The attention function that transformers
calls in every layer (`AttentionInterface`) writes their keys and values into per-row slots and attends group by group:
rows with few new tokens padded together, long pieces of prompt one by one. What all rows of a pool have in common, the
prefix, is stored once; attention over it is one product for all rows, merged with that over a row's own slot by the
usual rescaling of two softmax parts (Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867).

Query heads that share a key head are folded into the query length, so that no key is ever repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_NARROW, _LITTLE = 2, 8
"""Rows with at most so many new tokens attend together, padded to the longest of them: the narrow ones, which are
nearly all, over one view of their slots, the little ones over slots picked out."""


@dataclass(frozen=True)
class Prefix:
    """Tokens that many prompts begin with, and per layer their keys and values [key heads, positions, head size]."""

    tokens: tuple[int, ...]
    keys: tuple[Tensor, ...] = ()
    values: tuple[Tensor, ...] = ()

    @property
    def bytes(self) -> int:
        """Memory that keys and values occupy."""
        return sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))


class Pool:
    """Slots for rows behind one prefix: per layer keys and values of shape [slots, key heads, capacity, head size].

    Slots are made as needed and reused. Used slots stay at the front (`compact`), so that attention reads them as one
    view.
    """

    def __init__(self, prefix: Prefix, capacity: int) -> None:
        self.prefix = prefix
        self.capacity = capacity
        self.used: list[object | None] = []
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    @property
    def slots(self) -> int:
        """Slots for which there is memory once a layer was written."""
        return len(self.used)

    def take(self, row: object) -> int:
        """The lowest free slot, which there must be; it belongs to `row` now."""
        slot = self.used.index(None)
        self.used[slot] = row
        return slot

    def free(self, slot: int) -> None:
        """Give a slot back."""
        self.used[slot] = None

    def spread(self) -> int:
        """The number of slots up to the last used one."""
        return max((i + 1 for i, row in enumerate(self.used) if row is not None), default=0)

    def move(self, source: int, target: int, positions: int) -> None:
        """Move a row's keys and values to another slot."""
        for tensor in (*self._keys, *self._values):
            tensor[target, :, :positions] = tensor[source, :, :positions]
        self.used[target], self.used[source] = self.used[source], None

    def grow(self, count: int) -> None:
        """Make `count` more slots; what the others hold is kept."""
        self.used += [None] * count
        for tensors in (self._keys, self._values):
            for i, old in enumerate(tensors):
                tensors[i] = old.new_zeros((len(self.used), *old.shape[1:]))
                tensors[i][: len(old)] = old

    def layer(self, index: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, made at its first use in the shape of `like` [1, key heads, tokens, size]."""
        while len(self._keys) <= index:
            shape = (len(self.used), like.shape[1], self.capacity, like.shape[3])
            # Zeros: what a masked position holds is multiplied by 0, which only a number survives.
            self._keys.append(like.new_zeros(shape))
            self._values.append(like.new_zeros(shape))
        return self._keys[index], self._values[index]

    def made(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer that was written before."""
        return self._keys[index], self._values[index]

    def as_prefix(self, slot: int, tokens: Sequence[int]) -> Prefix:
        """What a slot holds, as a prefix for other rows."""
        size = len(tokens)
        keys, values = ([t[slot, :, :size].clone() for t in tensors] for tensors in (self._keys, self._values))
        return Prefix(tuple(tokens), tuple(keys), tuple(values))


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
class _Group:
    """Rows of a pool that attend to their own slots together, with `width` queries each.

    `slots` are the pool's slots as one view (a slice) or picked out (a tensor). `index` [rows, width] says where a
    query stands in the flat row, `real` which are queries and not padding, `positions` where each stands in its slot.
    """

    pool: Pool
    slots: slice | Tensor
    index: Tensor
    real: Tensor
    positions: Tensor
    length: int
    flat: Tensor
    masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor:
        """Additive mask [rows, width, length], for a sliding window of so many positions or none."""
        if window not in self.masks:
            own = torch.arange(self.length, device=self.index.device)
            queries = self.positions.unsqueeze(-1)
            seen = own <= queries
            if window:
                seen &= own > queries - window
            # A padded query sees position 0, so that its softmax is a number; nobody reads its result.
            self.masks[window] = _additive(torch.where(self.real.unsqueeze(-1), seen, own == 0))
        return self.masks[window]


@dataclass
class _Shared:
    """The tokens of a step whose rows lie behind one prefix: where they stand in the flat row, and in their row."""

    pool: Pool
    index: Tensor
    slots: Tensor
    positions: Tensor
    masks: dict[int | None, Tensor | None] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor | None:
        """Additive mask [tokens, prefix], None where every token sees all of the prefix."""
        if window not in self.masks:
            size = len(self.pool.prefix.tokens)
            mask = None
            if window and int(self.positions.max()) + size >= window:
                before = torch.arange(size, device=self.index.device) - size
                mask = _additive(before > self.positions.unsqueeze(-1) - window)
            self.masks[window] = mask
        return self.masks[window]


def _additive(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, float("-inf"))


@dataclass(frozen=True)
class _Part:
    """Softmax over some of the keys, not yet divided: weighted values [tokens, heads, head size], the largest score
    and the sum of weights [tokens, heads]."""

    values: Tensor
    top: Tensor
    total: Tensor


class Step:
    """One pass of new tokens through the model: who attends to what. Built once, used by every layer."""

    def __init__(self, pieces: Sequence[Piece], device: torch.device) -> None:
        self._shared: list[_Shared] = []
        self._groups: list[_Group] = []
        pools = {id(piece.pool): piece.pool for piece in pieces}
        for key, pool in pools.items():
            mine = [piece for piece in pieces if id(piece.pool) == key]
            self._shared.append(_Shared(pool, *_flat_positions(mine, device)))
            narrow = [piece for piece in mine if piece.count <= _NARROW]
            little = [piece for piece in mine if _NARROW < piece.count <= _LITTLE]
            if narrow:
                rows = min(pool.slots, rounded(max(piece.slot for piece in narrow) + 1, 8))
                self._groups.append(_group(pool, slice(0, rows), {p.slot: p for p in narrow}, rows, device))
            if little:
                picked = torch.tensor([piece.slot for piece in little], device=device)
                self._groups.append(_group(pool, picked, dict(enumerate(little)), len(little), device))
            for piece in mine:
                if piece.count > _LITTLE:
                    own = slice(piece.slot, piece.slot + 1)
                    self._groups.append(_group(pool, own, {0: piece}, 1, device))

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
        new_keys, new_values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        for shared in self._shared:
            keys, values = shared.pool.layer(layer, key)
            keys[shared.slots, :, shared.positions] = new_keys[shared.index]
            values[shared.slots, :, shared.positions] = new_values[shared.index]
        _, heads, tokens, size = query.shape
        share = heads // key.shape[1]
        flat = query[0].transpose(0, 1) * scaling
        # Tokens that belong to no piece fill the flat row up; they come out as zeros.
        result = torch.zeros((tokens, heads, size), device=query.device)
        top = torch.zeros((tokens, heads), device=query.device)
        total = torch.ones((tokens, heads), device=query.device)
        for group in self._groups:
            part = _own(group, layer, flat, share, group.mask(window), cap)
            result[group.flat], top[group.flat], total[group.flat] = part.values, part.top, part.total
        for shared in self._shared:
            if shared.pool.prefix.keys:
                at = shared.index
                far = _ahead(shared, layer, flat[at], share, shared.mask(window), cap)
                both = torch.maximum(top[at], far.top)
                near_share, far_share = torch.exp(top[at] - both), torch.exp(far.top - both)
                result[at] = result[at] * near_share.unsqueeze(-1) + far.values * far_share.unsqueeze(-1)
                total[at] = total[at] * near_share + far.total * far_share
        return (result / total.unsqueeze(-1)).to(query.dtype).unsqueeze(0)


def _own(group: _Group, layer: int, flat: Tensor, share: int, mask: Tensor, cap: float | None) -> _Part:
    """Attention of a group's rows over their own slots."""
    keys, values = (tensor[group.slots, :, : group.length] for tensor in group.pool.made(layer))
    rows, width = group.index.shape
    heads, size = flat.shape[1:]
    key_heads = heads // share
    # [rows, key heads, share * width, head size]: the heads that share a key head are folded into the queries.
    asked = flat[group.index].view(rows, width, key_heads, share, size).permute(0, 2, 3, 1, 4)
    asked = asked.reshape(rows, key_heads, share * width, size)
    scores = _capped((asked @ keys.transpose(-1, -2)).float(), cap)
    scores = scores.view(rows, key_heads, share, width, -1) + mask[:, None, None]
    top = scores.amax(-1, keepdim=True)
    weights = (scores - top).exp_()
    total = weights.sum(-1)
    out = weights.to(flat.dtype).view(rows, key_heads, share * width, -1) @ values
    out = out.view(rows, key_heads, share, width, size).permute(0, 3, 1, 2, 4).reshape(rows, width, heads, size)
    top, total = (t.permute(0, 3, 1, 2).reshape(rows, width, heads) for t in (top.squeeze(-1), total))
    return _Part(out[group.real].float(), top[group.real], total[group.real])


def _ahead(shared: _Shared, layer: int, asked: Tensor, share: int, mask: Tensor | None, cap: float | None) -> _Part:
    """Attention of all tokens behind a prefix over that prefix: one product, since all see the same keys."""
    prefix = shared.pool.prefix
    tokens, heads, size = asked.shape
    key_heads = heads // share
    folded = asked.view(tokens, key_heads, share, size).transpose(0, 1).reshape(key_heads, tokens * share, size)
    scores = _capped((folded @ prefix.keys[layer].transpose(-1, -2)).float(), cap)
    if mask is not None:
        scores = (scores.view(key_heads, tokens, share, -1) + mask[None, :, None]).view(key_heads, tokens * share, -1)
    top = scores.amax(-1, keepdim=True)
    # Where a window hides all of the prefix, every score is -inf, and so is the largest.
    weights = (scores - top.clamp(min=torch.finfo(top.dtype).min)).exp_()
    total = weights.sum(-1)
    out = (weights.to(asked.dtype) @ prefix.values[layer]).view(key_heads, tokens, share, size)
    out = out.transpose(0, 1).reshape(tokens, heads, size)
    top, total = (t.view(key_heads, tokens, share).transpose(0, 1).reshape(tokens, heads) for t in (top, total))
    return _Part(out.float(), top, total)


def _capped(scores: Tensor, cap: float | None) -> Tensor:
    return scores if cap is None else torch.tanh(scores / cap) * cap


def _flat_positions(pieces: Sequence[Piece], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    index = [piece.start + i for piece in pieces for i in range(piece.count)]
    slots = [piece.slot for piece in pieces for _ in range(piece.count)]
    positions = [piece.before + i for piece in pieces for i in range(piece.count)]
    flat = torch.tensor([index, slots, positions], device=device)
    return flat[0], flat[1], flat[2]


def _group(pool: Pool, slots: slice | Tensor, pieces: dict[int, Piece], rows: int, device: torch.device) -> _Group:
    widest = max(piece.count for piece in pieces.values())
    width = 1 << (widest - 1).bit_length() if widest <= _LITTLE else rounded(widest, 32)
    index = [[0] * width for _ in range(rows)]
    real = [[False] * width for _ in range(rows)]
    positions = [[0] * width for _ in range(rows)]
    for row, piece in sorted(pieces.items()):
        for i in range(piece.count):
            index[row][i], real[row][i], positions[row][i] = piece.start + i, True, piece.before + i
    length = min(pool.capacity, rounded(max(p.before + p.count for p in pieces.values()), 64))
    where, there = torch.tensor(index, device=device), torch.tensor(real, device=device)
    return _Group(pool, slots, where, there, torch.tensor(positions, device=device), length, where[there])


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
        key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
        scores = _capped((query @ key.transpose(-1, -2)).float() * scaling, cap) + _additive(seen)
        return scores.softmax(-1).to(value.dtype) @ value


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
