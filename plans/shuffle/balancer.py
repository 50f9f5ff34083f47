"""The load balancer: evens out the partitions of a partitioned join while it runs, by the cost of each bucket.

Source: Yasui, Tamura, Oguchi and Kitsuregawa, dynamic load balancing in a parallel DBMS (`docs/papers.md` 5). The paper
calls the load balancer foreman and a bucket hash line. The load of a partition or of a bucket over the last interval is

    L = N_recv · T_recv + N_comp · T_comp + N_send · T_send

with the rows received, the build rows compared, the rows produced, and the measured seconds per row of each. So a key
with many matches has a high load, even if it has few rows. The skew of a stage is (max L - min L) / mean L over
its partitions. Above a threshold, the balancer requests the loads of the buckets in the loaded partitions, and plans a
table that moves buckets to lighter partitions; a bucket that is too hot for any one partition is split over several.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkext.plans.shuffle.routing import RoutingTable


@dataclass(frozen=True)
class UnitCosts:
    """Seconds to receive a probe row, to compare it with a build row, and to produce a row."""

    received: float
    compared: float
    produced: float


@dataclass(frozen=True)
class RowCounts:
    """Rows of a bucket, or of a partition, over an interval: received, compared, produced."""

    received: int
    compared: int
    produced: int

    def load(self, costs: UnitCosts) -> float:
        """Return the seconds for these rows."""
        return self.received * costs.received + self.compared * costs.compared + self.produced * costs.produced


@dataclass(frozen=True)
class Balancer:
    """Plans tables for one stage, if its skew is above `threshold` (α).

    `may_split`: whether a bucket may be in several partitions. It may not if one partition has to emit all rows of a
    key, or if a split gains nothing.
    """

    threshold: float
    may_split: Callable[[int], bool] = lambda bucket: True

    def plan(
        self, table: RoutingTable, loads: Sequence[float], bucket_loads: Callable[[int], Mapping[int, float]]
    ) -> RoutingTable:
        """Return the next table: the current one, unless its partitions are skewed and buckets can be moved.

        Parameters
        ----------
        loads
            The load of each partition, in seconds.
        bucket_loads
            Returns the loads of a partition's buckets, without buckets of no load; called for loaded partitions only.
        """
        return table if skew(loads) <= self.threshold else _Plan(table, loads, bucket_loads, self).table()


def skew(loads: Sequence[float]) -> float:
    """Return (max - min) / mean of the loads of partitions; 0 if there is no load."""
    total = sum(loads)
    return (max(loads) - min(loads)) * len(loads) / total if total > 0 else 0.0


_PASSES = 4
"""A share of a hot bucket may overload the partition that receives it. The next pass moves other buckets from there."""


@dataclass(frozen=True, order=True)
class _Piece:
    """A load of a bucket to move to another partition.

    `partition`: the partition from which the bucket is removed, or -1 if a share of the bucket stays there.
    """

    load: float
    bucket: int
    partition: int


class _Plan:
    """The planned loads of partitions, and the planned partitions of moved buckets."""

    def __init__(
        self,
        table: RoutingTable,
        loads: Sequence[float],
        bucket_loads: Callable[[int], Mapping[int, float]],
        balancer: Balancer,
    ) -> None:
        self._table, self._bucket_loads, self._balancer = table, bucket_loads, balancer
        self._loads = list(loads)
        self._mean = sum(loads) / len(loads)
        self._overload = self._mean * (1 + balancer.threshold / 2)
        self._partitions: dict[int, set[int]] = {}
        self._buckets: dict[int, dict[int, float]] = {}
        self._received: dict[int, dict[int, float]] = defaultdict(dict)

    def table(self) -> RoutingTable:
        """Move buckets from partitions above the mean to the lightest, until the skew is low or no bucket can move."""
        for _ in range(_PASSES):
            loaded = [partition for partition, load in enumerate(self._loads) if load > self._mean]
            pieces = [piece for partition in loaded for piece in self._relieve(partition)]
            self._settle(pieces)
            if not pieces or skew(self._loads) <= self._balancer.threshold / 2:
                break
        changes = {bucket: tuple(sorted(partitions)) for bucket, partitions in self._partitions.items()}
        changes = {
            bucket: partitions
            for bucket, partitions in changes.items()
            if partitions != self._table.partitions_of(bucket)
        }
        return self._table.derive_next(changes) if changes else self._table

    def _relieve(self, partition: int) -> list[_Piece]:
        """Split or remove buckets of a partition, the hottest first, so that few move; return the pieces to move.

        A bucket is removed only if the remaining load is at least the mean. If this load is still too high in the end,
        the lightest bucket is removed, too.
        """
        buckets = self._buckets_in(partition)
        pieces: list[_Piece] = []
        for bucket in sorted(buckets, key=lambda bucket: (-buckets[bucket], bucket)):
            if buckets[bucket] > self._overload and self._balancer.may_split(bucket):
                pieces += self._split(partition, bucket)
            elif buckets[bucket] <= self._loads[partition] - self._mean:
                pieces.append(self._remove(partition, bucket))
        if self._loads[partition] > self._overload and len(buckets) > 1:
            pieces.append(self._remove(partition, min(buckets, key=lambda bucket: (buckets[bucket], bucket))))
        return pieces

    def _buckets_in(self, partition: int) -> dict[int, float]:
        if partition not in self._buckets:
            self._buckets[partition] = dict(self._bucket_loads(partition))
        self._buckets[partition].update(self._received.pop(partition, {}))
        return self._buckets[partition]

    def _split(self, partition: int, bucket: int) -> list[_Piece]:
        """Leave one share of a bucket in its partition; return the other shares, for partitions without the bucket."""
        load = self._buckets[partition][bucket]
        shares = min(math.ceil(load / self._mean), self._table.partitions)
        self._buckets[partition][bucket] = load / shares
        self._loads[partition] -= load - load / shares
        return [_Piece(load / shares, bucket, -1)] * (shares - 1)

    def _remove(self, partition: int, bucket: int) -> _Piece:
        load = self._buckets[partition].pop(bucket)
        self._loads[partition] -= load
        return _Piece(load, bucket, partition)

    def _settle(self, pieces: list[_Piece]) -> None:
        """Assign each piece to the lightest partition that does not have its bucket, the most costly piece first."""
        lightest = [(load, partition) for partition, load in enumerate(self._loads)]
        heapq.heapify(lightest)
        for piece in sorted(pieces, reverse=True):
            partitions = self._partitions.setdefault(piece.bucket, {*self._table.partitions_of(piece.bucket)})
            partitions.discard(piece.partition)
            passed = []
            while lightest and lightest[0][1] in partitions:
                passed.append(heapq.heappop(lightest))
            if lightest:
                load, partition = heapq.heapreplace(lightest, (lightest[0][0] + piece.load, lightest[0][1]))
                self._loads[partition] = load + piece.load
                self._received[partition][piece.bucket] = piece.load
                partitions.add(partition)
            for entry in passed:
                heapq.heappush(lightest, entry)
