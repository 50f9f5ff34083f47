"""Routes the rows of each bucket (`line`) to a partition (`slot`), by the newest routing table known to this task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sparkext.plans.shuffle.load_table import Board, Interval, Told, drawn, judged
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.shuffle.streamed import Streamed, TaskFiles

_JUDGES: Mapping[str, Callable[[Board, int, int], Interval] | None] = {
    "planned": judged,
    "hash": None,
    "random": drawn,
}
"""The function that plans the next interval, by mode of `spark.sparkext.debug.slots`."""


class Router:
    """Follows the load table (`Board`) of a run, and proposes the next routing table when an interval is over."""

    def __init__(self, streamed: Streamed, files: TaskFiles, way: str, task: int) -> None:
        """Begin with all buckets at home. The partitions of a split bucket are used in turn, beginning with `task`."""
        self._streamed = streamed
        self._files = files
        self._judge = _JUDGES[way]
        self._agreed = way != "random"
        self._turn = task
        self._told = Told()
        self._table = RoutingTable(streamed.lines, streamed.slots)

    def look(self) -> None:
        """Adopt the newest routing table; if its interval is over, propose the next one. Advance the split buckets."""
        self._turn += 1
        board = self._files.board()
        if board is not None and self._agreed:
            self._take(board.interval)
        if self._judge is None or board is None or (self._agreed and not board.is_over):
            return
        following = self._judge(board, self._streamed.lines, self._streamed.slots)
        self._files.propose(following)
        if not self._agreed:  # random mode: tasks may use different tables
            self._take(following)

    def _take(self, interval: Interval) -> None:
        self._table = RoutingTable(self._streamed.lines, self._streamed.slots, interval.moved, interval.number)

    def slot(self, line: int) -> int:
        """Return the current partition of a bucket."""
        slots = self._table.slots_of(line)
        return slots[self._turn % len(slots)]

    def tell(self, lines: Iterable[int], rows: Iterable[int]) -> None:
        """Report routed rows: the buckets, and the number of rows of each."""
        for line, count in zip(lines, rows, strict=True):
            self._told.count(line, count)
        self._files.tell(self._told)
