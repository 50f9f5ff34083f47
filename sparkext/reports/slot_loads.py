"""How the work of a partitioned join was dealt out: the loads of its slots by hash, as planned, and as they ran."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkext.plans.foreman import skew
from sparkext.reports.metrics import TaskMetrics
from sparkext.wording import counted


def _built(index: Mapping[str, Any]) -> float:
    """Return the seconds that a task has spent on an index: none, if another one had made it."""
    return 0.0 if index["reused"] else float(index["seconds"])


@dataclass(frozen=True)
class SlotLoads:
    """Seconds of each slot: by the hash of keys alone, as planned, and as its task took for the index and the join.

    `moved` lines went to another slot for that, `split` ones to several. `took` lacks tasks that told nothing.
    `cut`: into how many parts both sides were divided, where slots are units of a join matrix; behind them are
    `owners`, see `plans.matrix`. `skews`: that of each interval, where rows streamed to slots; `by_hash` are the loads
    of the first then, `planned` those of the last, and `took` is what a slot has worked for the lines of these, without
    the time that it waited for rows.
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
    def of(cls, planned: str, tasks: Sequence[TaskMetrics]) -> SlotLoads:
        """Put together what the foreman has answered, as JSON, and what tasks have told."""
        told = json.loads(planned)
        if "streamed" in told:
            return cls._streamed(told["streamed"])
        took = tuple(task.elapsed_seconds + sum(map(_built, task.indexes)) for task in tasks)
        cut = told.get("cut")
        loads = (tuple(told["before"]), tuple(told["after"]))
        of_matrix = None if cut is None else tuple(cut)
        return cls(*loads, took, told["moved"], told["split"], of_matrix, owners=told.get("owners", 0))

    @classmethod
    def _streamed(cls, told: Mapping[str, Any]) -> SlotLoads:
        """Read what was on the board of a run in the end."""
        took = tuple(told["worked"])
        intervals = [tuple(loads) for loads in told["judged"]] or [took]
        shares = [len(slots) for slots in (told["interval"] or {"moved": {}})["moved"].values()]
        split = sum(count > 1 for count in shares)
        skews = tuple(map(skew, intervals))
        return cls(intervals[0], intervals[-1], took, len(shares) - split, split, skews=skews)

    def __str__(self) -> str:
        """Tell it in a sentence: skew is (max - min) / mean."""
        if self.cut is not None:
            units = f"{self.cut[0]} × {self.cut[1]} units of a join matrix, probe and build rows"
            if self.owners:
                units += f", and {self.owners} that tell which build rows match nothing"
            return f"{units}: skew {skew(self.took):.2f} as they ran"
        lines = f"{counted(self.moved, 'line')} moved, {counted(self.split, 'line')} split"
        if self.skews:
            streamed = f"{counted(len(self.planned), 'slot')} in {counted(len(self.skews), 'interval')}, {lines}"
            first, last = self.skews[0], self.skews[-1]
            return f"{streamed}: skew {first:.2f} in the first, {last:.2f} in the last, {skew(self.took):.2f} of all"
        balanced = f"skew {skew(self.by_hash):.2f} by hash, {skew(self.planned):.2f} as planned"
        return f"{counted(len(self.planned), 'slot')}, {lines}: {balanced}, {skew(self.took):.2f} as they ran"
