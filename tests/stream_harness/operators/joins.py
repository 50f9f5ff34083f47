"""`stream_join`, whose oracle is Spark's join of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.stream_harness.columns import Column
from tests.stream_harness.nodes import Emitted, History, Node, Streams, place, unequal
from tests.stream_harness.sources import Row
from tests.stream_harness.tables import table
from tests.support.sql import quoted
from tests.support.times import micros

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_OPERATORS = {
    "=": lambda a, b: a == b,
    "<=>": lambda a, b: a.eqNullSafe(b),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@dataclass(frozen=True)
class StreamJoin:
    """A join of two nodes. `terms` are (left column, operator, right column); `retain` is in seconds.

    `spelled` is the form of `on`: `names`, `using` or `columns`.
    """

    left: Node
    right: Node
    terms: tuple[tuple[str, str, str], ...]
    how: str = "inner"
    retain: tuple[int | None, int | None] = (None, None)
    event_time: str | None = None
    spelled: str = "names"
    name: str | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The two inputs of the join."""
        return self.left, self.right

    @property
    def columns(self) -> tuple[Column, ...]:
        if self.how == "semi":
            return self.left.columns
        both = (*self.left.columns, *self.right.columns)
        if self.event_time is None:
            return both
        assert self.left.time is not None, "both sides have a watermark"
        kind = self.left.columns[place(self.left.columns, self.left.time)].type
        return (*both, Column(self.event_time, kind))

    @property
    def time(self) -> str | None:
        return self.event_time

    @property
    def unique(self) -> str | None:
        return self.left.unique if self.how == "semi" else None

    @property
    def needs_time(self) -> bool:
        """Whether late rows are dropped."""
        return self.retain != (None, None) or self.event_time is not None

    def frame(self, streams: Streams) -> DataFrame:
        from sparkext.streams import stream_join

        left, right = self.left.frame(streams), self.right.frame(streams)
        given: dict[str, Any] = {"how": self.how, "name": self.name, "event_time": self.event_time}
        if self.retain != (None, None):
            given["retain"] = tuple(None if one is None else f"{one} seconds" for one in self.retain)
        if not self.terms:
            given["how"] = "cross"
        elif self.spelled == "columns":
            given["on"] = self._condition(left, right)
        else:
            given["on"] = [*self.terms]
        return stream_join(left, right, **given)

    def _condition(self, left: DataFrame, right: DataFrame) -> SparkColumn:
        from pyspark.sql import functions as F

        condition = F.lit(True) if not self.terms else None
        for one, operator, other in self.terms:
            term = _OPERATORS[operator](left[quoted(one)], right[quoted(other)])
            condition = term if condition is None else condition & term
        assert condition is not None
        return condition

    def expected(self, history: History, timed: bool) -> list[Row]:
        from pyspark.sql import functions as F

        left, right = (
            table(history.spark, node.columns, node.expected(history, self.needs_time)) for node in self.inputs
        )
        condition = self._condition(left, right)
        for (one, retained), (other, later) in (
            ((left, self.retain[0]), (right, self.right.time)),
            ((right, self.retain[1]), (left, self.left.time)),
        ):
            if retained is not None:
                own = self.left.time if one is left else self.right.time
                assert own is not None and later is not None, "both sides have a watermark"
                lasts = F.expr(f"make_dt_interval(0, 0, 0, {retained})")
                condition = condition & (other[quoted(later)] <= one[quoted(own)] + lasts)
        how = {"left": "left_outer", "semi": "left_semi"}.get(self.how, "inner")
        joined = left.join(right.withColumn("__matched", F.lit(True)), condition, how)
        rows = [tuple(row.values()) for row in _listed(joined)]
        return rows if self.how == "semi" else self._emitted(rows, history)

    def _emitted(self, rows: list[Row], history: History) -> list[Row]:
        """Return rows with their event time, without unmatched rows whose time the watermark has not passed."""
        found = []
        width = len(self.left.columns)
        for *row, matched in rows:
            time = None
            if self.needs_time and self.left.time is not None and self.right.time is not None:
                time = row[place(self.left.columns, self.left.time)]
                other = row[width + place(self.right.columns, self.right.time)]
                if matched:
                    time = max(time, other)
                else:
                    retained = self.retain[0]
                    assert retained is not None, "a left join has an end"
                    time += timedelta(seconds=retained)
                    if micros(time) > history.watermark:
                        continue
            found.append((*row, time) if self.event_time is not None else tuple(row))
        return found

    def difference(self, history: History, found: Sequence[Emitted]) -> str:
        return unequal([one.row for one in found], self.expected(history, timed=False))


def _listed(frame: DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame with columns `c0`, `c1` and so on, because its own names may be equal."""
    renamed = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    found: list[dict[str, Any]] = renamed.toArrow().to_pylist()
    return found
