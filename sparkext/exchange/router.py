"""Which slot the rows of a line go to, by the newest table that this task knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparkext.exchange.streamed import Streamed, TaskFiles
from sparkext.plans.board import INTERVAL_SECONDS, Board, Interval, drawn, judged
from sparkext.plans.routing import RoutingTable

Judge = Callable[[Board, int, int], Interval]

_JUDGES: Mapping[str, tuple[Judge | None, float]] = {
    "planned": (judged, INTERVAL_SECONDS),
    "hash": (None, 0.0),
    "random": (drawn, 0.0),
}
"""Who judges an interval, and when it is over, by the names of `spark.sparkext.debug.slots`."""


class Router:
    """Follows the board of a run; proposes the next table when an interval is over."""

    def __init__(self, streamed: Streamed, files: TaskFiles, way: str, task: int) -> None:
        """Begin with all lines at home. The shares of a split line are taken in turn, beginning with that of `task`."""
        self._streamed = streamed
        self._files = files
        self._judge, self._seconds = _JUDGES[way]
        self._turn = task
        self._table = RoutingTable(streamed.lines, streamed.slots)

    def look(self) -> None:
        """Take the table that is on the board by now; judge the interval, if it is over. Shares go on by one."""
        self._turn += 1
        board = self._files.board()
        if board is None:
            return
        interval = board.interval
        if interval.number != self._table.version:
            lines, slots = self._streamed.lines, self._streamed.slots
            self._table = RoutingTable(lines, slots, interval.moved, interval.number)
        if self._judge is not None and board.seconds >= self._seconds:
            self._files.propose(self._judge(board, self._streamed.lines, self._streamed.slots))

    def slot(self, line: int) -> int:
        """Return where the rows of a line go now."""
        slots = self._table.slots_of(line)
        return slots[self._turn % len(slots)]
