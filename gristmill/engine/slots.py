"""Keys and values of the rows in the model: slots of one size behind a prefix that all of them share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


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
    """Slots for rows behind one prefix: per layer keys and values of shape [slots, capacity, key heads, head size].

    Slots are made as needed and reused. Used slots stay at the front (`pools.compact`), so that attention reads them as
    one view.
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
            tensor[target, :positions] = tensor[source, :positions]
        self.used[target], self.used[source] = self.used[source], None

    def grow(self, count: int) -> None:
        """Make `count` more slots; what the others hold is kept."""
        self.used += [None] * count
        for tensors in (self._keys, self._values):
            for i, old in enumerate(tensors):
                tensors[i] = _zeros((len(self.used), *old.shape[1:]), old)
                tensors[i][: len(old)] = old

    def write(self, layer: int, places: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store keys and values [tokens, key heads, head size] of a layer at `places` (slot * capacity + position)."""
        while len(self._keys) <= layer:
            shape = (len(self.used), self.capacity, *keys.shape[1:])
            self._keys.append(_zeros(shape, keys))
            self._values.append(_zeros(shape, values))
        self._keys[layer].flatten(0, 1).index_copy_(0, places, keys)
        self._values[layer].flatten(0, 1).index_copy_(0, places, values)

    def read(self, layer: int, slots: slice | Tensor, length: int) -> tuple[Tensor, Tensor]:
        """The first `length` keys and values of some slots, as [slots, key heads, length, head size]."""
        keys, values = self._keys[layer][slots, :length], self._values[layer][slots, :length]
        return keys.transpose(1, 2), values.transpose(1, 2)

    def as_prefix(self, slot: int, tokens: Sequence[int]) -> Prefix:
        """What a slot holds, as a prefix for other rows."""
        size = len(tokens)
        keys, values = (
            [t[slot, :size].transpose(0, 1).contiguous() for t in tensors] for tensors in (self._keys, self._values)
        )
        return Prefix(tuple(tokens), tuple(keys), tuple(values))


def _zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros of the dtype and on the device of another tensor.

    What a masked position holds is multiplied by 0, which only a number survives.
    On a CPU it is memory that the system gives when it is first touched, where torch writes every zero; the first touch
    of a new page is dear on a virtual machine.
    """
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    size = math.prod(shape) * like.element_size()
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(like.dtype).view(shape)
