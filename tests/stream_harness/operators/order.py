"""`ordered`, whose oracle sorts all rows and applies the function to the rows of each key one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.oracle.joins import join_key
from tests.stream_harness.columns import Column
from tests.stream_harness.functions import CHAIN, COUNT, Chained, chained
from tests.stream_harness.nodes import Emitted, History, Node, Streams, place, unequal, unequal_in_order
from tests.stream_harness.sources import Row
from tests.support.times import micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Ordered:
    """Orders a node by time. With `ties`, rows of equal times are ordered by the unique column."""

    input: Node
    order_key: tuple[str, ...] = ()
    operator_key: tuple[str, ...] = ()
    apply: Chained | None = None
    ties: bool = True
    split: bool = True
    late: str | None = None
    name: str | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input that is ordered."""
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        if self.apply is None:
            return self.input.columns
        kept = [self.input.columns[place(self.input.columns, name)] for name in self.apply.columns]
        return (*kept, Column(COUNT, "bigint"), Column(CHAIN, "bigint"))

    @property
    def time(self) -> str | None:
        return self.input.time

    @property
    def unique(self) -> str | None:
        return self.input.unique

    def frame(self, streams: Streams) -> DataFrame:
        from pyspark.sql.types import LongType, StructType

        from sparkext.streams import ordered

        frame = self.input.frame(streams)
        given: dict[str, Any] = {"time": self.time, "split": self.split, "late": self.late, "name": self.name}
        given["order_key"] = [*self.order_key] or None
        given["operator_key"] = [*self.operator_key] or None
        if self.ties:
            given["ties"] = self.unique
        if self.apply is not None:
            schema = StructType([frame.schema[name] for name in self.apply.columns])
            schema = schema.add(COUNT, LongType(), False).add(CHAIN, LongType(), True)
            given |= {"apply": self.apply, "schema": schema, "state": self.apply.initial()}
        return ordered(frame, **given)

    def _in_order(self, history: History) -> list[Row]:
        """Return the emitted rows in time order."""
        time = self._place(self.time)
        rows = [row for row in self.input.expected(history, timed=True) if micros(row[time]) <= history.watermark]
        if self.unique is None:
            return sorted(rows, key=lambda row: micros(row[time]))
        unique = self._place(self.unique)
        return sorted(rows, key=lambda row: (micros(row[time]), row[unique]))

    def _place(self, name: str | None) -> int:
        assert name is not None
        return place(self.input.columns, name)

    def expected(self, history: History, timed: bool) -> list[Row]:
        rows = self._in_order(history)
        if self.apply is None:
            return rows
        assert self.unique is not None
        unique = self._place(self.unique)
        kept = [self._place(name) for name in self.apply.columns]
        states: dict[Hashable, tuple[int, int]] = defaultdict(lambda: (0, 0))
        out = []
        for row in rows:
            key = join_key([row[self._place(name)] for name in (*self.order_key, *self.operator_key)], _safe(self))
            count, chain = states[key] = chained(*states[key], row[unique])
            if count % self.apply.every == 0:
                out.append((*(row[number] for number in kept), count, chain))
            if self.apply.form == "none" or count == self.apply.ends_after:
                del states[key]
        return out

    def difference(self, history: History, found: Sequence[Emitted]) -> str:
        width = len(self.columns)
        late = [one for one in found if self.late is not None and one.row[width] is not None]
        rows = [one for one in found if self.late is None or one.row[width] is None]
        if self.late is not None:
            assert self.input.unique is not None, "late rows are those of a stream"
            told = unequal([tuple(one.row[width].values()) for one in late], self._late(history))
            if told:
                return f"late rows: {told}"
        return self._unequal_in_order(rows, self.expected(history, timed=True))

    def _late(self, history: History) -> list[Row]:
        from tests.stream_harness.operators.inputs import Input

        assert isinstance(self.input, Input)
        return history.late(self.input.number)

    def _unequal_in_order(self, found: Sequence[Emitted], expected: Sequence[Row]) -> str:
        order = [place(self.columns, name) for name in self.order_key]
        partitions: dict[tuple[int, Hashable], int] = {}
        for one in found:
            key = one.batch, join_key([one.row[number] for number in order], [True] * len(order))
            if partitions.setdefault(key, one.partition) != one.partition:
                return f"rows of {key[1]} are in several partitions of batch {one.batch}"
        rows = [one.row[: len(self.columns)] for one in found]
        time = place(self.columns, self.time or "")
        ours, theirs = _by_key(rows, order), _by_key(expected, order)
        for key, sequence in ours.items():
            times = [micros(row[time]) for row in sequence]
            if times != sorted(times):
                return f"rows of {key} are not in the order of time: {[row[time] for row in sequence]}"
        if not self.ties:
            return unequal(rows, expected)
        if self.apply is not None:  # results of equal times are unordered, except within an operator key
            order += [place(self.columns, name) for name in self.operator_key]
            ours, theirs = _by_key(rows, order), _by_key(expected, order)
        for key in {**ours, **theirs}:
            if told := unequal_in_order(ours.get(key, []), theirs.get(key, [])):
                return f"rows of {key}: {told}"
        return ""


def _safe(ordered: Ordered) -> list[bool]:
    return [True] * (len(ordered.order_key) + len(ordered.operator_key))


def _by_key(rows: Sequence[Row], places: Sequence[int]) -> dict[Hashable, list[Row]]:
    found: dict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        found[join_key([row[number] for number in places], [True] * len(places))].append(row)
    return found
