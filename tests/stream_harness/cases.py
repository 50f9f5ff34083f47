"""Draws a streaming query, its streams, runs and settings by the number of the case."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fuzz.types import Type
from tests.stream_harness.columns import KEYS, Column, Derivation
from tests.stream_harness.cuts import CHECKPOINTS, Run, draw_runs
from tests.stream_harness.functions import Chained
from tests.stream_harness.nodes import Node, Operator
from tests.stream_harness.operators.continuous import Continuous
from tests.stream_harness.operators.inputs import Input
from tests.stream_harness.operators.joins import StreamJoin
from tests.stream_harness.operators.nearest import NearestJoin
from tests.stream_harness.operators.order import Ordered
from tests.stream_harness.programs import PROGRAMS
from tests.stream_harness.sources import Stream
from tests.stream_harness.values import Drawing, draw_stream

_COMPARABLE = ("int", "decimal", "string", "date", "timestamp", "ntz", "float", "binary")
_SETTINGS: dict[str, tuple[str, ...]] = {
    "spark.sql.session.timeZone": ("America/New_York", "UTC", "Asia/Kolkata"),
    "spark.sql.ansi.enabled": ("true", "false"),
    "spark.sql.execution.arrow.maxRecordsPerBatch": ("10000", "10000", "1", "3"),
    "spark.sparkext.streams.unitMaxBytes": ("268435456", "268435456", "4096"),
    "spark.sparkext.morsel.maxRows": ("131072", "131072", "7"),
    "spark.sparkext.debug.hashMask": ("0xffffffffffffffff",) * 4 + ("0x0",),
}


@dataclass(frozen=True)
class Case:
    """A query over streams, how it reads their rows, and the settings of its session.

    `kind` is a key of `KINDS`. `predecessor` is another query of the same streams. It runs to its end first, with the
    same checkpoint, which is then deleted.
    """

    name: str
    kind: str
    streams: tuple[Stream, ...]
    query: Operator
    runs: tuple[Run, ...]
    checkpoint: str = "checkpoint"
    settings: dict[str, str] = field(default_factory=dict)
    predecessor: Operator | None = None


def make_case(seed: int, number: int, quick: bool = False) -> Case:
    """Return case `number` of a seed. A `quick` case has few batches, and programs that other tests compile as well."""
    name = f"{seed}/{number}"
    r = random.Random(f"stream {name}")
    kind = r.choices([*KINDS], [*KINDS.values()])[0]
    d = Drawing.of(r)
    if quick:
        d.beginnings = d.beginnings[:3]
    streams: list[Stream] = []
    query = _Maker(d, streams, quick).query(kind)
    settings = {key: r.choice(values) for key, values in _SETTINGS.items()}
    if r.random() < 0.85:  # compiling the code of a query costs more than running it on a few rows
        settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    runs = draw_runs(r, d.batches)
    if quick:  # each start of a query costs as much as a batch
        runs = (*runs[:1], Run(d.batches - runs[0].batches, runs[-1].partitions)) if len(runs) > 2 else runs
    before = _predecessor(r, query) if r.random() < 0.25 else None
    return Case(name, kind, tuple(streams), query, runs, r.choice(CHECKPOINTS), settings, before)


def _predecessor(r: random.Random, query: Operator) -> Operator | None:
    """Return an operator with the same name, and so the same state name, that differs slightly; or None."""
    if isinstance(query, StreamJoin) and query.name and query.how == "inner" and query.left.time and query.right.time:
        others = [one for one in ((None, None), (1, 1), (40, None)) if one != query.retain]
        return replace(query, retain=r.choice(others))
    if isinstance(query, NearestJoin) and query.name:
        return r.choice((replace(query, ties=not query.ties), replace(query, tolerance=(query.tolerance or 3) + 5)))
    return None


class _Maker:
    """Draws operators and the streams that they read."""

    def __init__(self, d: Drawing, streams: list[Stream], quick: bool) -> None:
        self._d, self._r, self._streams, self._quick = d, d.r, streams, quick
        self._named = 0

    def query(self, kind: str) -> Operator:
        """Return a query of a kind in `KINDS`."""
        first, _, behind = kind.partition(" → ")
        operator: Operator
        if first == "cql":
            return self._cql()
        if first == "ordered":
            operator = self._ordered(self._stream(), in_chain=bool(behind))
        elif first == "join":
            operator = self._join(in_chain=behind)
        else:
            operator = self._nearest(in_chain=bool(behind))
        return self._behind(behind, operator) if behind else operator

    def _behind(self, operator: str, node: Node) -> Operator:
        if operator == "ordered":
            return self._ordered(node)
        if operator == "cql":
            return self._cql_of_steps(node)
        if operator == "nearest":
            return self._nearest(left=node)
        return self._join(in_chain="", left=node)

    def _stream(self, *columns: Column, timed: bool = True, usual: dict[str, Sequence[Any]] | None = None) -> Input:
        """Draw a stream with these columns, or else with random keys, in addition to those that every stream has."""
        d, r = self._d, self._r
        keys = columns or tuple(d.column(r.choice(KEYS).sql) for _ in range(r.choice((1, 2, 2, 3))))
        delay = r.choice((0, 5, 12)) if timed or r.random() < 0.3 else None
        time, unique = d.column("timestamp"), d.column("bigint")
        return self._input(draw_stream(d, keys, time=time, unique=unique, delay=delay, usual=usual or {}))

    def _input(self, stream: Stream) -> Input:
        self._streams.append(stream)
        marked = None if stream.delay is None else stream.columns[stream.time].name
        return Input(len(self._streams) - 1, stream.columns, marked, stream.columns[stream.unique].name)

    def _name(self) -> str | None:
        self._named += 1
        return f"operator.{self._named}" if self._r.random() < 0.4 else None

    def _keys(self, node: Node) -> list[Column]:
        """Return columns that can be keys.

        The time and the unique number of a row are used only if there are no other columns.
        """
        own = [one for one in node.columns if one.of.family in (*_COMPARABLE, "bool") and one.of in KEYS]
        return [one for one in own if one.name not in (node.time, node.unique)] or own

    def _other_key(self, column: Column) -> Column:
        """Return a column for another stream that this one can be compared with."""
        kind: Type = column.of
        if kind.family == "int" and self._r.random() < 0.3:
            kind = self._r.choice([one for one in KEYS if one.family == "int"])
        return self._d.column(kind.sql)

    def _matching(self, own: Column, other: Column) -> dict[str, Sequence[Any]]:
        """In most cases, return the values of a column for another one, by its name, so that their rows match."""
        if own.type != other.type or self._r.random() < 0.2:
            return {}
        values = {
            row[place]: None
            for stream in self._streams
            for place, column in enumerate(stream.columns)
            if column == own
            for _, row in stream.rows()
            if row[place] is not None
        }
        return {other.name: [*values]} if values else {}

    def _join(self, in_chain: str, left: Node | None = None) -> StreamJoin:
        r = self._r
        how = r.choices(("inner", "left", "semi"), (5, 2, 2))[0]
        if in_chain or (left is not None and left.time is None):
            how = "inner"
        retain: tuple[int | None, int | None] = (None, None)
        if how != "inner" or r.random() < 0.35:
            one, other = r.choice((0, 3, 10, 40)), r.choice((0, 5, 30, None))
            retain = r.choice(((one, other), (one, one)))
        event_time = None
        needs_event_time = in_chain in ("ordered", "cql", "nearest")
        if how != "semi" and (needs_event_time or r.random() < 0.2):
            event_time = self._d.name()
        timed = retain != (None, None) or event_time is not None
        if left is not None and left.time is None:
            retain, event_time, timed = (None, None), None, False
        left = left or self._stream(timed=timed)
        forms = ("equal", "equal", "range", "band", "equal and range", "cross", "null safe")
        form = r.choice([one for one in forms if how == "inner" or one != "cross"])
        terms: list[tuple[str, str, str]] = []
        theirs: list[Column] = []
        among: dict[str, Sequence[Any]] = {}
        candidates = self._keys(left)
        r.shuffle(candidates)
        ordered = [one for one in candidates if one.of.family in _COMPARABLE]

        def compare(own: Column, operator: str) -> None:
            other = self._other_key(own) if operator in ("=", "<=>") else self._d.column(own.type)
            theirs.append(other)
            among.update(self._matching(own, other))
            terms.append((own.name, operator, other.name))

        if form.startswith("equal") or form == "null safe":
            for own in candidates[: r.choice((1, 1, 2))]:
                compare(own, "<=>" if form == "null safe" else "=")
        if form in ("range", "equal and range") and ordered:
            compare(ordered[-1], r.choice(("<", "<=", ">", ">=")))
        if form == "band" and ordered:
            compare(ordered[0], ">=")
            compare(ordered[0], "<")
        if not terms and how != "inner":
            compare(candidates[0], "=")
        right = self._stream(*theirs, timed=timed, usual=among)
        spelled = r.choice(("names", "names", "columns")) if terms else "names"
        return StreamJoin(left, right, tuple(terms), how, retain, event_time, spelled, self._name())

    def _nearest(self, in_chain: bool = False, left: Node | None = None) -> NearestJoin:
        r = self._r
        left = left or self._stream()
        candidates = self._keys(left)
        by = r.sample(candidates, min(len(candidates), r.choice((0, 1, 1, 2))))
        theirs = [self._other_key(one) for one in by]
        among: dict[str, Sequence[Any]] = {}
        for own, other in zip(by, theirs, strict=True):
            among |= self._matching(own, other)
        right = self._stream(*(theirs or [self._d.column("int")]), usual=among)
        direction = "backward" if in_chain else r.choice(("backward", "backward", "forward", "nearest"))
        tolerance = r.choice((0, 2, 6, 30, 30, 100)) if direction != "backward" or r.random() < 0.5 else None
        pairs = tuple((one.name, other.name) for one, other in zip(by, theirs, strict=True))
        how, exact, ties = r.choice(("left", "left", "inner")), r.random() < 0.7, r.random() < 0.7 or in_chain
        return NearestJoin(left, right, pairs, direction, tolerance, exact, how, ties, self._name())

    def _ordered(self, node: Node, in_chain: bool = False) -> Ordered:
        r = self._r
        candidates = self._keys(node)
        order = tuple(one.name for one in r.sample(candidates, min(len(candidates), r.choice((0, 1, 1, 1, 2)))))
        rest = [one.name for one in candidates if one.name not in order]
        apply, operators = None, ()
        if node.unique is not None and (in_chain or r.random() < 0.6):
            operators = tuple(r.sample(rest, min(len(rest), r.choice((1, 1, 2))))) or order[:1]
        elif r.random() < 0.3:
            operators = tuple(r.sample(rest, min(len(rest), 1)))
        if node.unique is not None and operators and (in_chain or r.random() < 0.8):
            kept = dict.fromkeys((*order, *operators, node.time or "", node.unique))
            form = r.choice(("none", "dict", "list", "text", "bytes"))
            every = 1 if form == "none" or in_chain else r.choice((1, 1, 2))
            apply = Chained(tuple(kept), node.unique, form, every, r.choice((0, 0, 1, 4)))
        ties = node.unique is not None and (apply is not None or r.random() < 0.6)
        late = self._d.name() if isinstance(node, Input) and not in_chain and r.random() < 0.25 else None
        return Ordered(node, order, operators, apply, ties, r.random() < 0.8, late, self._name())

    def _cql(self) -> Continuous:
        d, r = self._d, self._r
        d.most_rows = min(d.most_rows, 12)
        program = r.choice(("trading", "quotas") if self._quick else ("trading", "quotas", "windows", "pairs"))
        names = {column for columns in PROGRAMS[program].streams.values() for column, _ in columns}
        d.names += [*names, *map(str.lower, ("query", *PROGRAMS[program].outputs))]
        time, ties = d.column("timestamp"), d.column("bigint")
        watermark = r.choice((0, 5, 12)) if r.random() < 0.4 else None
        inputs = []
        for registered in PROGRAMS[program].streams.values():
            columns = [Column(self._spelled(name), self._narrowed(kind)) for name, kind in registered]
            usual = {one.name: _CQL_VALUES[kind] for one, (_, kind) in zip(columns, registered, strict=True)}
            usual |= {one.name: _OF_NAMES[one.name.lower()] for one in columns if one.name.lower() in _OF_NAMES}
            delay = None if watermark is not None else r.choice((0, 5, 12))
            stream = draw_stream(d, columns, time=time, unique=ties, delay=delay, usual=usual)
            inputs.append(self._input(_filled(stream, registered)))
        outputs = PROGRAMS[program].outputs
        return Continuous(program, tuple(inputs), outputs, time.name, ties.name, watermark, name=self._name())

    def _cql_of_steps(self, node: Node) -> Continuous:
        assert node.time is not None and node.unique is not None
        return Continuous("steps", (node,), ("most",), node.time, node.unique, name=self._name())

    def _spelled(self, name: str) -> str:
        return self._r.choice((name, name, name.upper(), name.capitalize()))

    def _narrowed(self, kind: str) -> str:
        narrower = {"bigint": ("bigint", "int", "smallint"), "int": ("int", "smallint"), "double": ("double", "float")}
        return self._r.choice(narrower.get(kind, (kind,)))


_CQL_VALUES: dict[str, tuple[Any, ...]] = {
    "string": ("a", "b", "", "ä", "a "),
    "bigint": (0, 1, 2, 7, 40),
    "int": (0, 1, 3, 9),
    "double": (0.0, -0.0, 1.0, 1.5, 2.0, 4.0, float("nan")),
    "boolean": (True, False),
}
_OF_NAMES: dict[str, tuple[Any, ...]] = {
    "price": (100.0, 250.5, 499.0, 500.0, 700.0),
    "val": (1_000_000.0, 3_000_000.0, 400_000.0, 500.0),
    "num": (0, 0, 0, 1),
}
"""Values for which the trading program buys."""


def _filled(stream: Stream, registered: Sequence[tuple[str, str]]) -> Stream:
    """Return a stream without NULLs in the columns where continuous queries refuse them: its time, and integers."""
    kinds = dict(registered)
    refusing = {
        stream.time: "required",
        **{place: "filled" for place, one in enumerate(stream.columns) if kinds.get(one.name.lower()) == "int"},
    }

    def derivation(place: int, made: Derivation) -> Derivation:
        way = refusing.get(place)
        return (
            made
            if way is None or made.way in ("filled", "literal")
            else Derivation(way, 1 if way == "filled" else None)
        )

    sources = tuple(
        replace(source, derivations=tuple(derivation(*one) for one in enumerate(source.derivations)))
        for source in stream.sources
    )
    return replace(stream, sources=sources)


KINDS = {
    "join": 5,
    "nearest": 4,
    "ordered": 5,
    "cql": 2,
    "join → ordered": 1,
    "join → join": 1,
    "join → nearest": 1,
    "nearest → ordered": 1,
    "ordered → cql": 1,
    "ordered → join": 1,
    "ordered → nearest": 1,
}
"""The kinds of cases with their frequencies: an operator, or an operator over another."""
