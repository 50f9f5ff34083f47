"""Partition loads of a partitioned join: by hash, as planned, and as executed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkext.plans.shuffle.balancer import skew
from sparkext.reports.metrics import TaskMetrics
from sparkext.wording import format_count


def _count_build_seconds(index: Mapping[str, Any]) -> float:
    """Return the seconds that a task has spent on an index, 0 if it reused an existing index."""
    return 0.0 if index["reused"] else float(index["seconds"])


@dataclass(frozen=True)
class PartitionLoads:
    """Seconds of work of each partition: planned by key hash alone, planned by the load balancer, and measured.

    `took` is the measured time of the partition's task for the index and the join, without tasks that reported nothing.
    `moved` buckets were assigned to another partition than by hash, `split` buckets to several.
    `cut` is the grid shape, the numbers of parts of the probe and the build side, if partitions are units of a join
    matrix; `owners` is the number of further partitions, after the units, that emit unmatched build rows (see
    `plans.shuffle.matrix`). `skews` has the skew of each interval, if rows were streamed to partitions. Then `by_hash`
    are the loads of the first interval, `planned` the loads of the last, and `took` is each partition's working time,
    without waiting for rows.
    """

    by_hash: tuple[float, ...]
    planned: tuple[float, ...]
    took: tuple[float, ...]
    moved: int
    split: int
    cut: tuple[int, int] | None = None
    skews: tuple[float, ...] = ()
    owners: int = 0

    @classmethod
    def of(cls, planned: str, tasks: Sequence[TaskMetrics]) -> PartitionLoads:
        """Combine the load balancer's plan, as JSON, with the metrics of the tasks."""
        plan = json.loads(planned)
        if "streamed" in plan:
            return cls._from_load_table(plan["streamed"])
        seconds = tuple(task.elapsed_seconds + sum(map(_count_build_seconds, task.indexes)) for task in tasks)
        shape = plan.get("cut")
        loads = (tuple(plan["before"]), tuple(plan["after"]))
        matrix_shape = None if shape is None else tuple(shape)
        return cls(*loads, seconds, plan["moved"], plan["split"], matrix_shape, owners=plan.get("owners", 0))

    @classmethod
    def _from_load_table(cls, state: Mapping[str, Any]) -> PartitionLoads:
        """Read the final state of a run's load table."""
        seconds = tuple(state["worked"])
        intervals = [tuple(loads) for loads in state["judged"]] or [seconds]
        shares = [len(partitions) for partitions in (state["interval"] or {"moved": {}})["moved"].values()]
        split = sum(count > 1 for count in shares)
        skews = tuple(map(skew, intervals))
        return cls(intervals[0], intervals[-1], seconds, len(shares) - split, split, skews=skews)

    def __str__(self) -> str:
        """Return a sentence with the numbers of partitions and moved buckets, and the skew, (max - min) / mean."""
        if self.cut is not None:
            units = f"{self.cut[0]} × {self.cut[1]} units of a join matrix, probe and build rows"
            if self.owners:
                units += f", and {self.owners} units that find unmatched build rows"
            return f"{units}: skew {skew(self.took):.2f} as executed"
        buckets = f"{format_count(self.moved, 'bucket')} moved, {format_count(self.split, 'bucket')} split"
        if self.skews:
            intervals = format_count(len(self.skews), "interval")
            streamed = f"{format_count(len(self.planned), 'partition')} in {intervals}, {buckets}"
            first, last = self.skews[0], self.skews[-1]
            return f"{streamed}: skew {first:.2f} in the first, {last:.2f} in the last, {skew(self.took):.2f} overall"
        balanced = f"skew {skew(self.by_hash):.2f} by hash, {skew(self.planned):.2f} as planned"
        return (
            f"{format_count(len(self.planned), 'partition')}, {buckets}: {balanced}, {skew(self.took):.2f} as executed"
        )
