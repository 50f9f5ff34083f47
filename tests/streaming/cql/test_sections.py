"""Queries that run together in a section, and sections that read what others have emitted, in any order of turns."""

from __future__ import annotations

import random

import pytest

from sparkext.kernels.runtime.jit import JIT_ENABLED
from sparkext.streaming.cql.code.engine import StateFullError
from sparkext.streaming.cql.code.module_text import generate_module
from sparkext.streaming.cql.language.sections import sections_of
from tests.oracle.cql import run_graph
from tests.streaming.cql.graphs import graph, run_engine

interpreted = pytest.mark.skipif(JIT_ENABLED, reason="it takes long to compile")

CHAIN = """
    REGISTER STREAM s (k int, v double);
    REGISTER STREAM t (k int);
    REGISTER QUERY low ISTREAM(SELECT k, count(*) AS n FROM s [Range 3 us] GROUP BY k);
    REGISTER QUERY later ISTREAM(SELECT k, n + 1 AS n FROM low [Now])<2 us>;
    REGISTER QUERY held SELECT k, max(n) AS n FROM later [Range 4 us] GROUP BY k;
    REGISTER QUERY left ISTREAM(SELECT h.k, h.n FROM held h, t [Now] WHERE h.k = t.k);
    REGISTER QUERY right ISTREAM(SELECT a.k, a.n + b.n AS n FROM low [Rows 2] a, later [Rows 2] b WHERE a.k = b.k);
"""
LOOP = """
    REGISTER STREAM s (k int);
    REGISTER QUERY a ISTREAM(SELECT k FROM s [Now] UNION ALL SELECT k - 1 AS k FROM b [Now] WHERE k > 0)<Now>;
    REGISTER QUERY b ISTREAM(SELECT k FROM a [Now]);
    REGISTER QUERY c ISTREAM(SELECT k, count(*) AS n FROM b [Range 5 us] GROUP BY k);
"""
BETWEEN = """
    REGISTER STREAM s (k int);
    REGISTER QUERY known SELECT k FROM s [Range 5 us];
    REGISTER QUERY one ISTREAM(SELECT k FROM known);
    REGISTER QUERY two ISTREAM(SELECT k + 1 AS k FROM one [Now]);
    REGISTER QUERY three ISTREAM(SELECT o.k FROM known o, two [Now] t WHERE o.k = t.k);
"""


def test_queries_that_read_relations_or_run_in_circles_stay_together() -> None:
    assert sections_of(graph(CHAIN)) == (("low",), ("later",), ("held", "left"), ("right",))
    assert sections_of(graph(LOOP)) == (("b", "a"), ("c",))


def test_a_query_between_two_that_stay_together_stays_with_them() -> None:
    """Query two reads one, and three reads two and also a query that one reads."""
    assert sections_of(graph(BETWEEN)) == (("known", "one", "two", "three"),)


def test_code_that_takes_rows_one_by_one_has_one_section() -> None:
    queries = graph(CHAIN)
    assert len(generate_module(queries, ["left", "right"]).instants) == 4
    assert len(generate_module(queries, ["left", "right"], serial=True).instants) == 1
    assert len(generate_module(queries, ["left"]).instants) == 3  # the other queries are not needed


@interpreted
@pytest.mark.parametrize("text", [CHAIN, LOOP, BETWEEN], ids=["chain", "loop", "between"])
@pytest.mark.parametrize("batch", [1, 7])
def test_turns_change_nothing(text: str, batch: int) -> None:
    draw, queries = random.Random(batch), graph(text)
    inputs = {}
    for name, stream in queries.streams.items():
        rows = sorted((draw.randint(0, 30), draw.randint(0, 3), float(draw.randint(0, 9))) for _ in range(40))
        inputs[name] = [(time, tuple(values[: len(stream.columns)])) for time, *values in rows]
    outputs = [name for name in queries.queries if queries.is_stream(name)]
    found = run_engine(queries, outputs, inputs, 100, [5, 17], batch=batch)
    assert found == {name: run_graph(queries, inputs, 100)[name] for name in outputs}
    assert all(found.values())
    assert found == run_engine(queries, outputs, inputs, 100, together=True)


@interpreted
def test_sections_that_are_behind_go_on_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most the rows of one turn wait between two sections, however many rows there are in all."""
    text = """
        REGISTER STREAM s (k int);
        REGISTER QUERY ticks RSTREAM[1 us](SELECT k FROM s [Range 3000 us]);
        REGISTER QUERY counted ISTREAM(SELECT count(*) AS n, sum(k) AS k FROM ticks [Now]);
        REGISTER QUERY last ISTREAM(SELECT n, k FROM counted [Now]);
    """
    monkeypatch.setattr("sparkext.streaming.cql.code.loops.ROWS_AT_ONCE", 50)
    queries, inputs = graph(text), {"s": [(time, (time,)) for time in range(1, 6)]}
    words = 1 << 13
    found = run_engine(queries, ["last"], inputs, 4000, words=words)
    assert found == run_engine(queries, ["last"], inputs, 4000, words=words, together=True)
    assert len(found["last"]) > 4
    monkeypatch.setattr("sparkext.streaming.cql.code.loops.ROWS_AT_ONCE", 1 << 16)
    with pytest.raises(StateFullError):
        run_engine(queries, ["last"], inputs, 4000, words=words)
