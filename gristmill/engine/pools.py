"""Which pools of slots there are, and how many positions they may hold together."""

from collections.abc import Iterable
from typing import Protocol

import torch

from gristmill.engine.slots import Pool, Prefix

_SMALLEST = 512


class Tenant(Protocol):
    """What takes a slot: it knows where it is and how many positions it holds."""

    pool: Pool
    slot: int
    held: int


class Pools:
    """Pools by prefix and slot size, within a budget of positions.

    Pools that nobody uses are given up when another needs the room. One that takes little of the budget has slots for
    all rows from the start: making more later means to copy, and on a CPU memory costs nothing before it is used.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._pools: dict[tuple[int, int], Pool] = {}

    @property
    def positions(self) -> int:
        """Positions of all slots together, used or not."""
        return sum(pool.slots * pool.capacity for pool in self._pools.values())

    def with_room(self, prefix: Prefix, need: int, rows: int) -> Pool | None:
        """A pool with a free slot of at least `need` positions behind a prefix, or None while the budget is spent.

        `rows` is how many there may be at once.
        """
        capacity = slot_size(need)
        key = (id(prefix) if prefix.tokens else 0, capacity)
        pool = self._pools.get(key)
        if pool is not None and None in pool.used:
            return pool
        # As many slots again, as far as the budget goes; the first one is given whatever the budget says.
        wanted = max(4, pool.slots if pool is not None else min(rows, self.budget // (4 * capacity)))
        if self._room() < wanted * capacity:
            self._pools = {k: p for k, p in self._pools.items() if _busy(p) or p is pool}
        count = min(wanted, self._room() // capacity) or (1 if self.positions == 0 else 0)
        if count <= 0:
            return None
        if pool is None:
            pool = self._pools[key] = Pool(prefix, capacity)
        pool.grow(count)
        return pool

    def give_up(self, prefix: Prefix) -> None:
        """Forget unused pools behind a prefix that is not kept any more."""
        self._pools = {k: pool for k, pool in self._pools.items() if pool.prefix is not prefix or _busy(pool)}

    def clear(self) -> None:
        """Forget all pools."""
        self._pools.clear()

    def free(self) -> bool:
        """Whether no slot is in use."""
        return not any(_busy(pool) for pool in self._pools.values())

    def _room(self) -> int:
        return max(0, self.budget - self.positions)


@torch.inference_mode()
def compact(tenants: Iterable[Tenant]) -> None:
    """Close gaps between used slots, so that attention reads no more of them than it must."""
    by_place = {(id(tenant.pool), tenant.slot): tenant for tenant in tenants}
    for pool in {id(tenant.pool): tenant.pool for tenant in by_place.values()}.values():
        while (last := pool.spread() - 1) > (hole := pool.used.index(None) if None in pool.used else last):
            tenant = by_place[id(pool), last]
            pool.move(last, hole, tenant.held)
            tenant.slot = hole


def slot_size(need: int) -> int:
    """Positions of a slot for `need` of them: powers of two and their halves between, so that pools are few."""
    size = _SMALLEST
    while size < need:
        size *= 2
    return size * 3 // 4 if size > _SMALLEST and size * 3 // 4 >= need else size


def _busy(pool: Pool) -> bool:
    return any(row is not None for row in pool.used)
