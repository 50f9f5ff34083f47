"""The function that plans the slots of a join: one task, in one worker, between the map tasks and the others.

So there is one foreman, whether a driver runs Python or not.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.kernels.join_size import WIDTH, pairs_of
from sparkext.memory.probes import Tasks
from sparkext.plans.line_costs import Ran, Scale
from sparkext.plans.matrix import Cut, matrix_plan
from sparkext.plans.waves import SideCounts, counted, wave_plan
from sparkext.worker.worker_task import ConfiguredTask


@dataclass(frozen=True)
class ForemanTask(ConfiguredTask):
    """Answers the row that it is given with a text: the slots, and their loads before and after the plan.

    `order` is that of `work_order.plan`.
    """

    order: dict[str, Any]

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Plan."""
        for _ in batches:
            yield pa.record_batch([pa.array([json.dumps(self._planned())])], names=["c0"])

    def _planned(self) -> dict[str, Any]:
        probe, *builds = (_Side.of(told) for told in (self.order["probe"], *self.order["builds"]))
        lines = counted(
            probe.counts,
            [build.counts for build in builds],
            np.sum([_met(probe, build) for build in builds], axis=0).tolist(),
            needs_probe=self.order["needs_probe"],
            needs_build=self.order["needs_build"],
        )
        way = self.settings.debug_slots
        cores, most_shares, full = self.order["cores"], self.order["most_shares"], not self.order["needs_probe"]
        if (most_build_shares := self.order["most_build_shares"]) is not None:
            most = Cut(most_shares, most_build_shares)
            plan = matrix_plan(lines.get(0), cores, most, way, full=full)
        else:
            plan = wave_plan(
                lines,
                len(probe.counts.sent),
                cores,
                most_shares=most_shares,
                scale=Scale.measured(itertools.starmap(Ran, self.order["ran"])),
                marks=full,
                way=way,
            )
        slots = [[vars(share) for share in slot] for slot in plan.slots]
        return {**vars(plan), "slots": slots}


@dataclass(frozen=True)
class _Side:
    """What the tasks that have sent a side have told of each line; `sketch` has `WIDTH` numbers a line.

    `paired`: whether each of its rows is met that has the key of a probe row, not only the first.
    """

    counts: SideCounts
    sketch: Any
    paired: bool

    @classmethod
    def of(cls, told: dict[str, Any]) -> _Side:
        rows, sent, sizes, sketch = (_numbers(told[name]) for name in ("rows", "bytes", "sizes", "sketch"))
        if not rows.size:  # no task has sent anything
            rows = sizes = np.zeros_like(sent)
            sketch = np.zeros(sent.size * WIDTH, sent.dtype)
        return cls(SideCounts(rows.tolist(), sizes.tolist(), sent.tolist(), told["maps"]), sketch, told["paired"])


def _met(probe: _Side, build: _Side) -> Any:
    """Return int64[lines]: how many pairs of rows of each line are met."""
    pairs = pairs_of(probe.sketch, build.sketch)
    return pairs if build.paired else np.minimum(pairs, probe.counts.rows)


def _numbers(text: str) -> Any:
    """Return int64[n] of what the JVM has added up: bytes, in hexadecimal."""
    return np.frombuffer(bytes.fromhex(text), dtype="<i8")
