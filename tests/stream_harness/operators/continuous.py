"""`cql`, whose oracle is the slow interpreter of continuous queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from tests.oracle.cql import run_graph
from tests.oracle.joins import comparable
from tests.stream_harness.columns import Column
from tests.stream_harness.nodes import Emitted, History, Node, Streams, unequal_in_order
from tests.stream_harness.programs import PROGRAMS, Program
from tests.stream_harness.sources import Row
from tests.support.times import micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Continuous:
    """A program over nodes, in the order of its streams. All nodes have the columns `time` and `ties`.

    `watermark` is the delay in seconds for streams that have no watermark of their own.
    """

    program: str
    inputs: tuple[Node, ...]
    outputs: tuple[str, ...]
    time: str
    ties: str
    watermark: int | None = None
    serial: bool = False
    name: str | None = None

    unique = None

    @property
    def of(self) -> Program:
        """The program's text, streams and outputs."""
        return PROGRAMS[self.program]

    @property
    def columns(self) -> tuple[Column, ...]:
        raise NotImplementedError("no operator reads continuous queries")

    def frame(self, streams: Streams) -> DataFrame:
        from sparkext.streams import cql

        queries = cql(self.of.text)
        frames = {name: node.frame(streams) for name, node in zip(self.of.streams, self.inputs, strict=True)}
        given: dict[str, Any] = {"time": self.time, "ties": self.ties, "serial": self.serial, "name": self.name}
        given["watermark"] = None if self.watermark is None else f"{self.watermark} seconds"
        if len(self.outputs) > 1:
            return queries.outputs(*self.outputs, **given, **frames)
        return queries.output(self.outputs[0], **given, **frames)

    def expected(self, history: History, timed: bool) -> list[Row]:
        raise NotImplementedError("no operator reads continuous queries")

    def _emitted(self, history: History) -> dict[str, list[tuple[int, Row]]]:
        from sparkext.streams import cql

        arrived = []
        for (name, registered), node in zip(self.of.streams.items(), self.inputs, strict=True):
            names = [column.name.lower() for column in node.columns]
            places = [names.index(column.lower()) for column, _ in registered]
            time, ties = names.index(self.time.lower()), names.index(self.ties.lower())
            for row in node.expected(history, timed=True):
                values = tuple(_as_registered(row[at], kind) for at, (_, kind) in zip(places, registered, strict=True))
                arrived.append((micros(row[time]), row[ties], name, values))
        arrived.sort(key=lambda one: one[:2])
        arrived = [one for one in arrived if one[0] <= history.watermark]
        graph = cql(self.of.text)._graph.needed(self.outputs)
        if self.serial:
            return run_graph(graph, {}, history.watermark, serial=[(t, name, row) for t, _, name, row in arrived])
        inputs: dict[str, list[tuple[int, Row]]] = defaultdict(list)
        for t, _, name, row in arrived:
            inputs[name].append((t, row))
        return run_graph(graph, inputs, history.watermark)

    def difference(self, history: History, found: Sequence[Emitted]) -> str:
        expected = self._emitted(history)
        for number, query in enumerate(self.outputs):
            rows = [one.row for one in found]
            if len(self.outputs) > 1:  # the name of a query, the time, and a struct per query
                rows = [(*row[2 + number].values(), row[1]) for row in rows if row[0] == query]
            ours = self._by_key([(*row[:-1], _naive(row[-1])) for row in rows])
            theirs = self._by_key([(*row, _EPOCH + timedelta(microseconds=t)) for t, row in expected[query]])
            for key in {**ours, **theirs}:
                if told := unequal_in_order(ours.get(key, []), theirs.get(key, [])):
                    return f"{query} of {key}: {told}"
        return ""

    def _by_key(self, rows: Sequence[Row]) -> dict[Hashable, list[Row]]:
        found: dict[Hashable, list[Row]] = defaultdict(list)
        for row in rows:
            found[comparable(row[0]) if self.of.by_key else None].append(row)
        return found


def _as_registered(value: Any, kind: str) -> Any:
    """Convert a value of a narrower type to the registered type."""
    return float(value) if kind == "double" and value is not None else value


def _naive(time: datetime) -> datetime:
    return time if time.tzinfo is None else time.astimezone(timezone.utc).replace(tzinfo=None)
