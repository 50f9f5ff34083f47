"""The parts of a query: streams and operators. Each can be built in Spark, and computed from all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol

from tests.oracle.rows import canonical
from tests.stream_harness.columns import Column
from tests.stream_harness.sources import Row, Stream
from tests.support.times import micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Streams(Protocol):
    """The streams of a query in Spark."""

    spark: SparkSession

    def stream(self, number: int) -> DataFrame:
        """Return a stream with its watermark."""


@dataclass(frozen=True)
class Emitted:
    """A row that a batch emitted, and the partition that emitted it."""

    batch: int
    partition: int
    row: Row


@dataclass(frozen=True)
class History:
    """All rows that a query has read, and its watermarks.

    Rows of batch b are late with respect to the watermark `thresholds[b]`. `watermark` is the last one that decided
    which rows are emitted. Both are in µs since 1970.
    """

    spark: SparkSession
    streams: tuple[Stream, ...]
    thresholds: tuple[int, ...]
    watermark: int

    def rows(self, number: int) -> list[Row]:
        """Return all rows of a stream, late ones included."""
        return [row for _, row in self.streams[number].rows()]

    def on_time(self, number: int) -> list[Row]:
        """Return the rows of a stream that are not late."""
        return self._split(number)[0]

    def late(self, number: int) -> list[Row]:
        """Return the rows of a stream that are late, or have no time."""
        return self._split(number)[1]

    def _split(self, number: int) -> tuple[list[Row], list[Row]]:
        stream = self.streams[number]
        found: tuple[list[Row], list[Row]] = ([], [])
        for batch, row in stream.rows():
            time = row[stream.time]
            found[time is None or micros(time) <= self.thresholds[batch]].append(row)
        return found


class Node(Protocol):
    """A stream, or an operator. `time` names the column with the watermark, `unique` a column with unique values."""

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def time(self) -> str | None: ...

    @property
    def unique(self) -> str | None: ...

    def frame(self, streams: Streams) -> DataFrame:
        """Return the streaming DataFrame."""

    def expected(self, history: History, timed: bool) -> list[Row]:
        """Return the rows that have been emitted, in any order. `timed`: without late rows."""


class Operator(Node, Protocol):
    """An operator that can be the last one of a query."""

    def difference(self, history: History, found: Sequence[Emitted]) -> str:
        """Return how the emitted rows differ from the expected ones; an empty text if they are equal."""


def place(columns: Sequence[Column], name: str) -> int:
    """Return the position of a column."""
    return [column.name for column in columns].index(name)


def text(row: Sequence[Any]) -> str:
    """Return a text that is the same for two rows if users cannot distinguish them."""
    return repr(canonical([_plain(value) for value in row]))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    if isinstance(value, Decimal) and not value:
        return abs(value)  # Spark's decimals have only one zero
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def unequal(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """Return how two multisets of rows differ; an empty text if they are equal."""
    ours, theirs = Counter(map(text, found)), Counter(map(text, expected))
    missing, surplus = theirs - ours, ours - theirs
    if not missing and not surplus:
        return ""
    return f"{len(found)} rows, expected {len(expected)}: missing {_some(missing)}, surplus {_some(surplus)}"


def unequal_in_order(found: Sequence[Row], expected: Sequence[Row]) -> str:
    """Return how two sequences of rows differ; an empty text if they are equal."""
    ours, theirs = [*map(text, found)], [*map(text, expected)]
    if ours == theirs:
        return ""
    if told := unequal(found, expected):
        return told
    at = next(number for number, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1])
    return f"another order from row {at} on: {ours[at : at + 3]}, expected {theirs[at : at + 3]}"


def _some(rows: Counter[str]) -> str:
    return "; ".join(f"{count} x {row}" for row, count in rows.most_common(3)) or "none"
