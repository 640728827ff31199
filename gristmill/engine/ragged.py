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

_LITTLE = 8
"""Rows with at most this many new tokens attend together, padded to the longest of them."""


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
        """The lowest free slot, made if there is none; it belongs to `row` now."""
        if None not in self.used:
            self._grow(max(4, len(self.used)))
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

    def _grow(self, count: int) -> None:
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
    """Slots `first` to `first + rows` of a pool, which attend together with `width` queries each.

    `index` [rows, width] says where a query stands in the flat row, `real` which are queries and not padding, and
    `positions` [rows, width] where each stands in its slot. `write` lists flat index, slot and position of new keys.
    """

    pool: Pool
    first: int
    index: Tensor
    real: Tensor
    positions: Tensor
    length: int
    masks: dict[int | None, tuple[Tensor | None, Tensor]] = field(default_factory=dict)

    def mask(self, window: int | None) -> tuple[Tensor | None, Tensor]:
        """Additive masks over prefix [rows, width, prefix] (None where all of it is seen) and slot [rows, width,
        length], for a sliding window of so many positions or none."""
        if window not in self.masks:
            device = self.index.device
            own = torch.arange(self.length, device=device)
            queries = self.positions.unsqueeze(-1)
            # A padded query sees position 0, so that its softmax is a number; nobody reads its result.
            seen = (own <= queries) & ((own > queries - window) if window else True)
            seen = torch.where(self.real.unsqueeze(-1), seen, own == 0)
            before = len(self.pool.prefix.tokens)
            ahead = None
            if window and before and int(self.positions.max()) + before >= window:
                prefix = torch.arange(before, device=device) - before
                ahead = _additive((prefix > queries - window) | ~self.real.unsqueeze(-1))
            self.masks[window] = (ahead, _additive(seen))
        return self.masks[window]


def _additive(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, float("-inf"))


class Step:
    """One pass of new tokens through the model: who attends to what. Built once, used by every layer."""

    def __init__(self, pieces: Sequence[Piece], device: torch.device) -> None:
        self._writes: list[tuple[Pool, Tensor, Tensor, Tensor]] = []
        self._groups: list[_Group] = []
        pools = {id(piece.pool): piece.pool for piece in pieces}
        for key, pool in pools.items():
            mine = [piece for piece in pieces if id(piece.pool) == key]
            self._writes.append((pool, *_flat_positions(mine, device)))
            little = [piece for piece in mine if piece.count <= _LITTLE]
            if little:
                first = min(piece.slot for piece in little)
                rows = max(piece.slot for piece in little) + 1 - first
                self._groups.append(_group(pool, first, rows, little, device))
            for piece in mine:
                if piece.count > _LITTLE:
                    self._groups.append(_group(pool, piece.slot, 1, [piece], device))

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
        for pool, index, slots, positions in self._writes:
            keys, values = pool.layer(layer, key)
            keys[slots, :, positions] = key[0].transpose(0, 1)[index]
            values[slots, :, positions] = value[0].transpose(0, 1)[index]
        _, heads, tokens, size = query.shape
        out = query.new_empty((tokens, heads, size))
        flat = query[0].transpose(0, 1)
        for group in self._groups:
            out[group.index[group.real]] = self._attend_group(group, layer, flat, key.shape[1], scaling, window, cap)
        return out.unsqueeze(0)

    def _attend_group(
        self,
        group: _Group,
        layer: int,
        flat: Tensor,
        key_heads: int,
        scaling: float,
        window: int | None,
        cap: float | None,
    ) -> Tensor:
        keys, values = group.pool.made(layer)
        rows, width = group.index.shape
        heads, size = flat.shape[1:]
        share = heads // key_heads
        ahead, own = group.mask(window)
        # [rows, key heads, share * width, head size]
        asked = flat[group.index].view(rows, width, key_heads, share, size).permute(0, 2, 3, 1, 4)
        asked = asked.reshape(rows, key_heads, share * width, size) * scaling
        mine = slice(group.first, group.first + rows)
        scores = (asked @ keys[mine, :, : group.length].transpose(-1, -2)).float()
        scores = _capped(scores, cap).view(rows, key_heads, share, width, -1) + own[:, None, None]
        scores = scores.view(rows, key_heads, share * width, -1)
        top = scores.amax(-1, keepdim=True)
        prefix = group.pool.prefix
        if prefix.keys:
            # [key heads, rows * share * width, head size]: all rows at once, since all see the same keys.
            together = asked.transpose(0, 1).reshape(key_heads, rows * share * width, size)
            far = _capped((together @ prefix.keys[layer].transpose(-1, -2)).float(), cap)
            if ahead is not None:
                far = far.view(key_heads, rows, share, width, -1) + ahead[None, :, None]
                far = far.view(key_heads, rows * share * width, -1)
            far_top = far.amax(-1, keepdim=True).view(key_heads, rows, share * width, 1).transpose(0, 1)
            top = torch.maximum(top, far_top)
            weights = (far - top.transpose(0, 1).reshape(key_heads, -1, 1)).exp_()
            far_sum = weights.sum(-1, keepdim=True).view(key_heads, rows, share * width, 1).transpose(0, 1)
            far_out = weights.to(flat.dtype) @ prefix.values[layer]
            far_out = far_out.view(key_heads, rows, share * width, size).transpose(0, 1)
        weights = (scores - top).exp_()
        total = weights.sum(-1, keepdim=True)
        result = (weights.to(flat.dtype) @ values[mine, :, : group.length]).float()
        if prefix.keys:
            result, total = result + far_out, total + far_sum
        result = (result / total).to(flat.dtype)
        # Back to [rows, width, heads, head size], and only the real queries of it.
        result = result.view(rows, key_heads, share, width, size).permute(0, 3, 1, 2, 4)
        return result.reshape(rows, width, heads, size)[group.real]


def _capped(scores: Tensor, cap: float | None) -> Tensor:
    return scores if cap is None else torch.tanh(scores / cap) * cap


def _flat_positions(pieces: Sequence[Piece], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    index = [piece.start + i for piece in pieces for i in range(piece.count)]
    slots = [piece.slot for piece in pieces for _ in range(piece.count)]
    positions = [piece.before + i for piece in pieces for i in range(piece.count)]
    flat = torch.tensor([index, slots, positions], device=device)
    return flat[0], flat[1], flat[2]


def _group(pool: Pool, first: int, rows: int, pieces: Sequence[Piece], device: torch.device) -> _Group:
    width = max(piece.count for piece in pieces)
    index = [[0] * width for _ in range(rows)]
    real = [[False] * width for _ in range(rows)]
    positions = [[0] * width for _ in range(rows)]
    for piece in pieces:
        at = piece.slot - first
        for i in range(piece.count):
            index[at][i], real[at][i], positions[at][i] = piece.start + i, True, piece.before + i
    length = max(piece.before + piece.count for piece in pieces)
    tensors = (torch.tensor(index, device=device), torch.tensor(real, device=device))
    return _Group(pool, first, *tensors, torch.tensor(positions, device=device), length)


class RaggedAttention:
    """The attention function of one engine, under a name of its own in transformers' registry.

    `step` must be set before the model is called.
    """

    def __init__(self, name: str) -> None:
        from transformers import AttentionInterface

        self.step: Step | None = None
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
