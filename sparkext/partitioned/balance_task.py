"""The worker function that plans the partitions of a join, in one task between the map tasks and the join tasks.

It runs the load balancer (the "foreman" of paper 5) in a worker, so that it also works with a driver without Python.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.engine.worker_task import ConfiguredTask
from sparkext.kernels.shuffle.join_size import WIDTH, estimate_pairs
from sparkext.memory.probes import Tasks
from sparkext.plans.shuffle.bucket_costs import CostScale, MeasuredWork
from sparkext.plans.shuffle.fragments import GridShape
from sparkext.plans.shuffle.matrix import plan_matrix
from sparkext.plans.shuffle.waves import SideCounts, count_buckets, plan_waves


@dataclass(frozen=True)
class BalanceTask(ConfiguredTask):
    """Answers each input batch with a JSON text: the planned partitions, and their loads without and with the plan.

    `order`: the work order, see `work_order.plan`.
    """

    order: dict[str, Any]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Emit the plan."""
        for _ in batches:
            yield pa.record_batch([pa.array([json.dumps(self._plan_partitions())])], names=["c0"])

    def _plan_partitions(self) -> dict[str, Any]:
        probe, *builds = (_Side.of(statistics) for statistics in (self.order["probe"], *self.order["builds"]))
        buckets = count_buckets(
            probe.counts,
            [build.counts for build in builds],
            np.sum([_count_pairs(probe, build) for build in builds], axis=0).tolist(),
            needs_probe=self.order["needs_probe"],
            needs_build=self.order["needs_build"],
        )
        mode = self.settings.debug_partitions
        cores, most_shares, full = self.order["cores"], self.order["most_shares"], not self.order["needs_probe"]
        if (most_build_shares := self.order["most_build_shares"]) is not None:
            most = GridShape(most_shares, most_build_shares)
            plan = plan_matrix(buckets.get(0), cores, most, mode, full=full)
        else:
            plan = plan_waves(
                buckets,
                len(probe.counts.sent),
                cores,
                most_shares=most_shares,
                scale=CostScale.measured(itertools.starmap(MeasuredWork, self.order["ran"])),
                marks=full,
                way=mode,
            )
        partitions = [[vars(share) for share in partition] for partition in plan.partitions]
        return {**vars(plan), "partitions": partitions}


@dataclass(frozen=True)
class _Side:
    """The statistics that the map tasks of a side reported per bucket; `sketch` has `WIDTH` numbers per bucket.

    `paired`: whether a probe row is joined with every build row of its key, instead of only the first.
    """

    counts: SideCounts
    sketch: Any
    paired: bool

    @classmethod
    def of(cls, statistics: dict[str, Any]) -> _Side:
        rows, sent, sizes, sketch = (_decode_numbers(statistics[name]) for name in ("rows", "bytes", "sizes", "sketch"))
        if not rows.size:  # no map task has sent any rows
            rows = sizes = np.zeros_like(sent)
            sketch = np.zeros(sent.size * WIDTH, sent.dtype)
        return cls(
            SideCounts(rows.tolist(), sizes.tolist(), sent.tolist(), statistics["maps"]), sketch, statistics["paired"]
        )


def _count_pairs(probe: _Side, build: _Side) -> Any:
    """Return int64[buckets]: the number of joined pairs of each bucket."""
    pairs = estimate_pairs(probe.sketch, build.sketch)
    return pairs if build.paired else np.minimum(pairs, probe.counts.rows)


def _decode_numbers(text: str) -> Any:
    """Decode int64[n] from the JVM's sums: little-endian bytes, in hexadecimal."""
    return np.frombuffer(bytes.fromhex(text), dtype="<i8")
