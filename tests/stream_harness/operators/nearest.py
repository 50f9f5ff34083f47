"""`stream_asof_join`, whose oracle compares every pair of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.oracle.joins import join_key
from tests.stream_harness.columns import Column
from tests.stream_harness.nodes import Emitted, History, Node, Streams, place, text, unequal
from tests.stream_harness.sources import Row
from tests.support.times import micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class NearestJoin:
    """An as-of join of two nodes by pairs of columns. `tolerance` is in seconds.

    Without `ties`, any of the right rows at the nearest time is correct.
    """

    left: Node
    right: Node
    by: tuple[tuple[str, str], ...]
    direction: str = "backward"
    tolerance: int | None = None
    exact: bool = True
    how: str = "left"
    ties: bool = True
    name: str | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The two inputs of the join."""
        return self.left, self.right

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.left.columns, *self.right.columns)

    @property
    def time(self) -> str | None:
        return self.left.time if self.direction == "backward" else None

    @property
    def unique(self) -> str | None:
        return self.left.unique

    def frame(self, streams: Streams) -> DataFrame:
        from sparkext.streams import stream_asof_join

        assert self.left.time is not None and self.right.time is not None, "both sides have a watermark"
        return stream_asof_join(
            self.left.frame(streams),
            self.right.frame(streams),
            on=(self.left.time, self.right.time),
            by=[*self.by] or None,
            direction=self.direction,
            tolerance=None if self.tolerance is None else timedelta(seconds=self.tolerance),
            allow_exact_matches=self.exact,
            how=self.how,
            ties=self.right.unique if self.ties else None,
            name=self.name,
        )

    def expected(self, history: History, timed: bool) -> list[Row]:
        found = []
        for row, candidates in self._candidates(history):
            if candidates or self.how == "left":
                found.append((*row, *(candidates[0] if candidates else (None,) * len(self.right.columns))))
        return found

    def _candidates(self, history: History) -> list[tuple[Row, list[Row]]]:
        """Return each emitted left row with the right rows at the nearest time, in order of preference."""
        rows = self.right.expected(history, timed=True)
        waits = 0 if self.direction == "backward" else self.tolerance or 0
        left, right = self.left, self.right
        assert left.time is not None and right.time is not None and right.unique is not None
        own, theirs = place(left.columns, left.time), place(right.columns, right.time)
        keys = [(place(left.columns, one), place(right.columns, other)) for one, other in self.by]
        safe = [False] * len(keys)
        unique = place(right.columns, right.unique)
        found = []
        for row in left.expected(history, timed=True):
            time = micros(row[own])
            if time + waits * 1_000_000 > history.watermark:
                continue
            key = join_key([row[one] for one, _ in keys], safe)
            near = []
            for other in rows:
                apart = micros(other[theirs]) - time
                if key is None or key != join_key([other[place] for _, place in keys], safe):
                    continue
                if self.tolerance is not None and abs(apart) > self.tolerance * 1_000_000:
                    continue
                if (apart == 0 and not self.exact) or not self._looks(apart):
                    continue
                before = apart <= 0 if self.direction == "nearest" else self.direction == "backward"
                near.append(((abs(apart), not before), -other[unique] if before else other[unique], other))
            near.sort(key=lambda one: one[:2])
            found.append((row, [other for far, _, other in near if far == near[0][0]]))
        return found

    def _looks(self, apart: int) -> bool:
        """Return whether the direction admits a right row at this difference of times."""
        return self.direction == "nearest" or apart == 0 or (apart < 0) == (self.direction == "backward")

    def difference(self, history: History, found: Sequence[Emitted]) -> str:
        rows = [one.row for one in found]
        if self.ties:
            return unequal(rows, self.expected(history, timed=True))
        # Any of the nearest rows is correct: expect the emitted one if it is among them.
        ours = {*map(text, rows)}
        expected = []
        for row, candidates in self._candidates(history):
            joined = [(*row, *other) for other in candidates]
            if not joined and self.how == "left":
                joined = [(*row, *(None,) * len(self.right.columns))]
            if joined:
                expected.append(next((one for one in joined if text(one) in ours), joined[0]))
        return unequal(rows, expected)
