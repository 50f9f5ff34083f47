"""Routes the rows of each bucket to a partition, by the newest routing table known to this task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sparkext.plans.shuffle.load_table import BucketReport, Interval, LoadTable, draw_interval, judged
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.shuffle.streamed import StreamedExchange, TaskFiles

_JUDGES: Mapping[str, Callable[[LoadTable, int, int], Interval] | None] = {
    "planned": judged,
    "hash": None,
    "random": draw_interval,
}
"""The function that plans the next interval, by mode of `spark.sparkext.debug.partitions`."""


class Router:
    """Follows the load table (`LoadTable`) of a run, and proposes the next routing table when an interval is over."""

    def __init__(self, streamed: StreamedExchange, files: TaskFiles, mode: str, task: int) -> None:
        """Begin with all buckets at home. The partitions of a split bucket are used in turn, beginning with `task`."""
        self._streamed = streamed
        self._files = files
        self._judge = _JUDGES[mode]
        self._agreed = mode != "random"
        self._turn = task
        self._report = BucketReport()
        self._table = RoutingTable(streamed.buckets, streamed.partitions)

    def look(self) -> None:
        """Adopt the newest routing table; if its interval is over, propose the next one. Advance the split buckets."""
        self._turn += 1
        load_table = self._files.load_table()
        if load_table is not None and self._agreed:
            self._adopt(load_table.interval)
        if self._judge is None or load_table is None or (self._agreed and not load_table.is_over):
            return
        proposal = self._judge(load_table, self._streamed.buckets, self._streamed.partitions)
        self._files.propose(proposal)
        if not self._agreed:  # random mode: tasks may use different tables
            self._adopt(proposal)

    def _adopt(self, interval: Interval) -> None:
        self._table = RoutingTable(self._streamed.buckets, self._streamed.partitions, interval.moved, interval.number)

    def partition(self, bucket: int) -> int:
        """Return the current partition of a bucket."""
        partitions = self._table.partitions_of(bucket)
        return partitions[self._turn % len(partitions)]

    def report_rows(self, buckets: Iterable[int], rows: Iterable[int]) -> None:
        """Report routed rows: the buckets, and the number of rows of each."""
        for bucket, count in zip(buckets, rows, strict=True):
            self._report.count(bucket, count)
        self._files.write_report(self._report)
