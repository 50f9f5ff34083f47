"""The planner of the P-SORT paper: assigns operator keys to partitions.

Source: Katsunuma et al. (`docs/papers.md` 1). Ordered streams run another planner, `plans.streams.order_table`.

Rows with different operator keys (OPK, such as a sensor) may be processed independently. Rows with one order key (SPK,
such as a device; each operator key has one) have to be emitted in the order of time. So all operator keys of an order
key go to one partition, which needs no merge. If an order key exceeds a partition's share, its operator keys are
distributed over several partitions, and only their results are merged.

    10 sensors, 4 partitions, capacity 3   A, 6 sensors ──▶ partitions 0 and 1, merged
                                           B, 2         ──▶ partition 2
                                           C, 1 and D, 1 ──▶ partition 3
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

Members = Mapping[Hashable, Mapping[Hashable, int]]
"""The operator keys of each order key, with their weights: numbers of rows, or 1 each if these are unknown."""


@dataclass(frozen=True)
class Assignment:
    """The partition of each (order key, operator key), and the order keys whose results have to be merged."""

    partitions: Mapping[tuple[Hashable, Hashable], int]
    merged: frozenset[Hashable]


def assign_basic(members: Members, partitions: int) -> Assignment:
    """Assign whole order keys, the heaviest first, each to the lightest partition. Nothing is merged."""
    return _assign_keys(members, partitions, frozenset())


def assign_optimised(members: Members, partitions: int) -> Assignment:
    """Split each order key heavier than a partition's share over as many of the lightest partitions as it needs."""
    capacity = -(-sum(map(_sum_weights, members.values())) // partitions)
    return _assign_keys(
        members, partitions, frozenset(key for key, own in members.items() if _sum_weights(own) > capacity)
    )


def _assign_keys(members: Members, partitions: int, split: frozenset[Hashable]) -> Assignment:
    capacity = max(1, -(-sum(map(_sum_weights, members.values())) // partitions))
    lightest = [(0, partition) for partition in range(partitions)]
    found: dict[tuple[Hashable, Hashable], int] = {}
    for key, own in sorted(members.items(), key=lambda item: -_sum_weights(item[1])):
        parts = min(-(-_sum_weights(own) // capacity), partitions) if key in split else 1
        chosen = [heapq.heappop(lightest) for _ in range(parts)]
        if parts == 1:
            [(load, partition)] = chosen
            found.update(((key, member), partition) for member in own)
            chosen = [(load + _sum_weights(own), partition)]
        else:
            for member, weight in sorted(own.items(), key=lambda item: -item[1]):
                load, partition = chosen[0]
                heapq.heapreplace(chosen, (load + weight, partition))
                found[key, member] = partition
        for entry in chosen:
            heapq.heappush(lightest, entry)
    return Assignment(found, split)


def _sum_weights(own: Mapping[Hashable, int]) -> int:
    return sum(own.values())
