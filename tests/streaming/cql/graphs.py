"""Random queries over two streams of one schema, which every query has as well; and functions that run them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.kernels.runtime.jit import freeze
from sparkext.rows.types import arrow_key_type
from sparkext.streaming.cql.code.engine import ROWS_IN_TURN, Engine, InputRows
from sparkext.streaming.cql.code.module_text import generate_module
from sparkext.streaming.cql.language.binder import bind
from sparkext.streaming.cql.language.graph import Graph, build_graph
from sparkext.streaming.cql.language.parser import parse

Rows = Sequence[tuple[int, tuple[Any, ...]]]
COLUMNS = {"k": "int", "v": "double", "s": "string"}
STREAMS = """
REGISTER STREAM i0 (k int, v double, s string);
REGISTER STREAM i1 (k int NOT NULL, v double, s string);
"""
VALUES = {
    "int": [None, 0, 1, 2, -1, (1 << 31) - 1],
    "double": [None, 0.0, -0.0, 1.5, float("nan"), 1e20, 2.0, float("inf")],
    "string": [None, "a", "b", "abc", "ä", ""],
}


def graph(text: str, missing_delay: str = "error") -> Graph:
    return build_graph(bind(parse(text)), missing_delay)


class Program:
    """A random text, and the names of its queries that are streams. `seed` determines everything."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        count = self._draw.randint(1, 4)
        emits = [self._draw.random() < 0.6 or number == count - 1 for number in range(count)]
        self.outputs = [f"q{number}" for number in range(count) if emits[number]]
        self._streams = ["i0", "i1", *self.outputs]
        names = ["i0", "i1", *(f"q{number}" for number in range(count))]
        self.text = STREAMS
        for number in range(count):
            if not emits[number] and self._draw.random() < 0.4:
                first, more = self._select(names[: 2 + number], plain=True), [f"q{number}"] * 2 + names[: 2 + number]
                relation = " UNION ".join([first, *(self._select(more, plain=True) for _ in range(2))])
                self.text += f"REGISTER RECURSIVE QUERY q{number} {relation};\n"
                continue
            is_recursive = self._draw.random() < 0.35
            relation = self._relation(names if is_recursive else names[: 2 + number])
            if is_recursive:
                relation = f"{self._select(['i0', 'i1'])} UNION ALL {relation}"
            if emits[number]:
                operator = self._draw.choice(["ISTREAM"] * 3 + ["DSTREAM", "RSTREAM[5 us]"])
                delays = ["<Now>", "<2 us>", "<3 us>"]
                delay = self._draw.choice(delays if is_recursive else ["", *delays])
                relation = f"{operator}({relation}){delay}"
            self.text += f"REGISTER QUERY q{number} {relation};\n"

    def _window(self) -> str:
        draw = self._draw
        return draw.choice(
            [
                "[Now]",
                "[Now]",
                f"[Range {draw.choice([0, 1, 2, 3, 7])} us]",
                f"[Range {draw.choice([1, 4, 6])} us Slide {draw.choice([2, 3, 5])} us]",
                "[Range Unbounded]",
                f"[Rows {draw.randint(1, 4)}]",
                f"[Rows {draw.randint(1, 4)} Slide {draw.randint(1, 3)}]",
                f"[Partition By {draw.choice([*COLUMNS])} Rows {draw.randint(1, 2)}]",
            ]
        )

    def _formula(self, kind: str, sources: int, depth: int = 0) -> str:
        draw = self._draw

        def part(kind: str) -> str:
            return self._formula(kind, sources, depth + 1)

        if kind == "boolean":
            compared = draw.choice([*COLUMNS.values()])
            tests = [f"{part(compared)} {op} {part(compared)}" for op in ("=", "<", ">=", "<>", "<=>")]
            if depth < 2:
                tests += [f"NOT ({part('boolean')})", f"({part('boolean')} OR {part('boolean')})"]
                tests += [f"{part(compared)} IS NOT NULL", f"{part('int')} BETWEEN 0 AND {part('int')}"]
            return draw.choice(tests)
        if draw.random() < 0.7 or depth > 3:
            column = next(name for name, one in COLUMNS.items() if one == kind)
            return f"a{draw.randrange(sources)}.{column}"
        if kind == "string":
            return draw.choice(["'a'", "''", f"coalesce({part(kind)}, 'b')", f"greatest({part(kind)}, {part(kind)})"])
        made = [f"({part(kind)} {op} {part(kind)})" for op in "+-*%"]
        made += [f"CASE WHEN {part('boolean')} THEN {part(kind)} ELSE {part(kind)} END", f"-{part(kind)}"]
        made += [f"coalesce({part(kind)}, {part(kind)})", "3" if kind == "int" else "1e20"]
        made += [f"({part(kind)} / {part('int')})"] if kind == "double" else []
        return draw.choice(made)

    def _select(self, names: Sequence[str], plain: bool = False) -> str:
        """Return a SELECT. A plain one has no aggregates, and mostly unchanged columns."""
        draw = self._draw
        count = draw.choice([1, 1, 1, 2, 2, 3])
        chosen = [draw.choice(names) for _ in range(count)]
        sources = [f"{name} {self._window() if name in self._streams else ''} a{n}" for n, name in enumerate(chosen)]
        tests = []
        for number in range(1, count):
            if draw.random() < 0.75:
                column = draw.choice([*COLUMNS])
                tests.append(f"a{number - 1}.{column} = a{number}.{column}")
        if draw.random() < 0.5:
            tests.append(self._formula("boolean", count))
        made = f" FROM {', '.join(sources)}{' WHERE ' + ' AND '.join(tests) if tests else ''}"
        if plain:
            columns = [f"a{draw.randrange(count)}.{name} AS {name}" for name in COLUMNS]
            columns[0] = draw.choice([columns[0]] * 3 + [f"least(a0.k, a{draw.randrange(count)}.k + 1) AS k"])
            return f"SELECT {', '.join(columns)}{made}"
        if draw.random() < 0.3:
            return f"SELECT {self._aggregates(by := draw.choice(['k', 's']))}{made} GROUP BY a0.{by}" + draw.choice(
                ["", " HAVING count(*) > 1"]
            )
        columns = ", ".join(f"{self._formula(kind, count)} AS {name}" for name, kind in COLUMNS.items())
        return f"SELECT {draw.choice(['', '', '', 'DISTINCT '])}{columns}{made}"

    def _aggregates(self, by: str) -> str:
        made = {
            "k": ["count(*)", "count(DISTINCT a0.v)", "sum(a0.k)", "min(a0.k)", "max(a0.k)", "count(a0.s)"],
            "v": ["sum(a0.v)", "avg(a0.k)", "avg(DISTINCT a0.v)", "min(a0.v)", "max(a0.v)", "sum(DISTINCT a0.v)"],
            "s": ["min(a0.s)", "max(a0.s)"],
        }
        chosen = {name: "a0." + name if name == by else self._draw.choice(made[name]) for name in COLUMNS}
        if by != "k":  # a column of queries has a single type
            chosen["k"] = f"CAST({chosen['k']} % 1000 AS int)"
        return ", ".join(f"{formula} AS {name}" for name, formula in chosen.items())

    def _relation(self, names: Sequence[str]) -> str:
        made = self._select(names)
        while self._draw.random() < 0.3:
            op = self._draw.choice(["UNION", "EXCEPT", "INTERSECT"]) + self._draw.choice(["", " ALL"])
            made = f"({made} {op} {self._select(names)})"
        return made


def random_rows(draw: random.Random, count: int, span: int) -> list[tuple[int, tuple[Any, ...]]]:
    """Return rows with values of all types, many of them at equal times."""
    times = sorted(draw.randint(0, span) for _ in range(count))
    return [(time, tuple(draw.choice(VALUES[kind]) for kind in COLUMNS.values())) for time in times]


def together(graph: Graph, inputs: Mapping[str, Rows]) -> list[tuple[int, str, tuple[Any, ...]]]:
    """Return the rows of all streams of a graph, with the stream's name; equal times in the order of the streams."""
    rows = [(time, name, row) for name in graph.streams for time, row in inputs.get(name, ())]
    return sorted(rows, key=lambda row: row[0])


def given(graph: Graph, inputs: Mapping[str, Rows]) -> InputRows:
    """Return the rows of all streams of a graph as columns, in time order."""
    names, rows = [*graph.streams], together(graph, inputs)
    columns = {
        name: [
            pa.array([row[k] if of == name else None for _, of, row in rows], arrow_key_type(column.type))
            for k, column in enumerate(graph.streams[name].columns)
        ]
        for name in names
    }
    times = np.array([row[0] for row in rows], dtype=np.int64)
    streams = np.array([names.index(row[1]) for row in rows], dtype=np.int8)
    return InputRows(freeze(times), freeze(streams), columns)


def run_engine(
    graph: Graph,
    outputs: Sequence[str],
    inputs: Mapping[str, Rows],
    until: int,
    cuts: Sequence[int] = (),
    words: int = 1 << 20,
    limit: int = 1000,
    serial: bool = False,
    together: bool = False,
    batch: int = ROWS_IN_TURN,
) -> dict[str, list[tuple[int, tuple[Any, ...]]]]:
    """Return the rows that engines emit. At each of `cuts`, a new engine resumes from the state of the previous one."""
    needed, state, low = graph.needed(outputs), None, -1
    code = generate_module(needed, outputs, serial=serial, together=together)
    emitted: dict[str, list[tuple[int, tuple[Any, ...]]]] = {name: [] for name in outputs}
    for high in [*cuts, until]:
        engine = Engine(needed, code, words=words, limit=limit, batch=batch, state=state)
        part = {name: [row for row in rows if low < row[0] <= high] for name, rows in inputs.items()}
        for made in engine.run(given(needed, part), high):
            columns = [column.to_pylist() for column in made.columns]
            emitted[made.query] += [*zip(made.times.tolist(), map(tuple, zip(*columns, strict=True)), strict=True)]
        state, low = engine.state(), high
    return emitted
