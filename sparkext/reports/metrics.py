"""The metrics that a task reports, and sums over the tasks of a run. Plain data, converted to JSON and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

from sparkext.parquet.metrics import ScanMetrics
from sparkext.plans.adaptive.operator_summary import OperatorSummary, merge_summaries


@dataclass(frozen=True)
class TaskId:
    """A task attempt. A later stage id belongs to a later run of the same DataFrame."""

    stage: int
    partition: int
    attempt: int


NO_TASK = TaskId(0, 0, 0)
"""Placeholder for a task that is not run by Spark."""


@dataclass
class TaskMetrics:
    """Counters of one task.

    `operators` has one summary per join, then one per operator after the joins (`behind`), the last of which is the
    sink; `seconds` has the time spent in each of them. Both are in the order of the query. `order` has the indexes of
    the joins in the order in which they ran, and is empty if they ran in the order of the query. `reduced` has (index,
    remaining build rows) of each join whose build side was reduced by other joins. `indexes` describes the index of
    each join (see `index_file.IndexInfo`), and whether it was `reused`. `scan` has the counters of a task that reads
    files itself. `source` describes the pipelines that derived the rows of the probe side. `decisions` are (time,
    operator index, headroom in bytes or None, budget in rows, produced rows). Points in time, including `started`, are
    seconds since the epoch by the node's clock, so times of several nodes are comparable only as far as the clocks
    agree.
    """

    task: TaskId
    operators: list[OperatorSummary] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    indexes: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[tuple[float, int, int | None, int, int]] = field(default_factory=list)
    rows_in: int = 0
    batches_in: int = 0
    morsels: int = 0
    batches_out: int = 0
    peak_rss_bytes: int = 0
    started: float = 0.0
    elapsed_seconds: float = 0.0
    scan: ScanMetrics | None = None
    behind: list[str] = field(default_factory=lambda: ["gather payload"])
    order: list[int] = field(default_factory=list)
    reduced: list[tuple[int, int]] = field(default_factory=list)
    source: list[str] = field(default_factory=list)

    @property
    def places(self) -> list[int]:
        """The indexes of the operators in the order in which they ran, joins first."""
        return [*self.order, *range(len(self.order), len(self.operators))]

    def rows_out(self) -> list[int]:
        """Return how many rows each operator passed to the operator that ran next, and how many the sink produced."""
        positions = self.places
        rows = [operator["rows_out"] for operator in self.operators]
        for number, following in pairwise(positions):
            rows[number] = self.operators[following]["rows_in"]
        return rows

    def restore_query_order(self, order: Sequence[int]) -> None:
        """Reorder the metrics of operators from `order`, in which the joins ran, to the order of the query."""
        self.order = [*order]
        positions = self.places
        entries = sorted(zip(positions, self.operators, self.seconds, strict=True), key=lambda entry: entry[0])
        self.operators = [{**summary, "operator": number} for number, summary, _ in entries]
        self.seconds = [seconds for _, _, seconds in entries]
        self.decisions = [
            (time, positions[operator], headroom, budget, produced)
            for time, operator, headroom, budget, produced in self.decisions
        ]

    def to_json(self) -> str:
        """Serialise; `from_json` reads it back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TaskMetrics:
        """Read the text of `to_json`."""
        data = json.loads(text)
        data["task"] = TaskId(**data["task"])
        if data["scan"] is not None:
            data["scan"] = ScanMetrics(**data["scan"])
        data["decisions"] = [tuple(decision) for decision in data["decisions"]]
        data["reduced"] = [tuple(reduction) for reduction in data.get("reduced", [])]
        return cls(**data)


def select_last_run(tasks: Iterable[TaskMetrics]) -> list[TaskMetrics]:
    """Return the tasks of the latest stage: the latest attempt for each partition, as earlier attempts have failed."""
    by_partition: dict[int, TaskMetrics] = {}
    latest = -1
    for metrics in sorted(tasks, key=lambda metrics: (metrics.task.stage, metrics.task.attempt)):
        if metrics.task.stage > latest:
            latest = metrics.task.stage
            by_partition.clear()
        by_partition[metrics.task.partition] = metrics
    return [by_partition[partition] for partition in sorted(by_partition)]


def sum_operators(tasks: Sequence[TaskMetrics]) -> list[OperatorSummary]:
    """Add up the operator summaries of the tasks of one run."""
    return merge_summaries([task.operators for task in tasks])


def append_metrics(first: TaskMetrics, second: TaskMetrics) -> TaskMetrics:
    """Return the metrics of a task that ran a pipeline, and then another form of it. `indexes` are from the first."""
    if not first.operators:
        return second
    return replace(
        first,
        operators=merge_summaries([first.operators, second.operators]),
        seconds=[
            first_seconds + second_seconds
            for first_seconds, second_seconds in zip(first.seconds, second.seconds, strict=True)
        ],
        decisions=first.decisions + second.decisions,
        rows_in=first.rows_in + second.rows_in,
        batches_in=first.batches_in + second.batches_in,
        morsels=first.morsels + second.morsels,
        batches_out=first.batches_out + second.batches_out,
        elapsed_seconds=first.elapsed_seconds + second.elapsed_seconds,
        reduced=[*dict.fromkeys(first.reduced + second.reduced)],
    )
