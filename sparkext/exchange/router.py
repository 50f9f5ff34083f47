"""Which slot the rows of a line go to, by the newest table that this task knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sparkext.exchange.streamed import Streamed, TaskFiles
from sparkext.plans.board import Board, Interval, Told, drawn, judged
from sparkext.plans.routing import RoutingTable

_JUDGES: Mapping[str, Callable[[Board, int, int], Interval] | None] = {
    "planned": judged,
    "hash": None,
    "random": drawn,
}
"""Who judges an interval, by the names of `spark.sparkext.debug.slots`."""


class Router:
    """Follows the board of a run; proposes the next table when an interval is over."""

    def __init__(self, streamed: Streamed, files: TaskFiles, way: str, task: int) -> None:
        """Begin with all lines at home. The shares of a split line are taken in turn, beginning with that of `task`."""
        self._streamed = streamed
        self._files = files
        self._judge = _JUDGES[way]
        self._agreed = way != "random"
        self._turn = task
        self._told = Told()
        self._table = RoutingTable(streamed.lines, streamed.slots)

    def look(self) -> None:
        """Take the table that is on the board by now; judge the interval, if it is over. Shares go on by one."""
        self._turn += 1
        board = self._files.board()
        if board is not None and self._agreed:
            self._take(board.interval)
        if self._judge is None or board is None or (self._agreed and not board.is_over):
            return
        following = self._judge(board, self._streamed.lines, self._streamed.slots)
        self._files.propose(following)
        if not self._agreed:  # any table will do, also one that no other task has
            self._take(following)

    def _take(self, interval: Interval) -> None:
        self._table = RoutingTable(self._streamed.lines, self._streamed.slots, interval.moved, interval.number)

    def slot(self, line: int) -> int:
        """Return where the rows of a line go now."""
        slots = self._table.slots_of(line)
        return slots[self._turn % len(slots)]

    def tell(self, lines: Iterable[int], rows: Iterable[int]) -> None:
        """Tell of rows that were routed, so many of each of these lines."""
        for line, count in zip(lines, rows, strict=True):
            self._told.count(line, count)
        self._files.tell(self._told)
