"""Generated code against the definitions, on random graphs, with any cuts.

Most of it runs without the JIT (see `test_without_jit`): compiling one graph with numba costs more than interpreting a
hundred.
"""

from __future__ import annotations

import random

import pytest

from bench.cases.streams.trading import TRADING
from sparkext.kernels.runtime.jit import JIT_ENABLED
from sparkext.streaming.cql.code.engine import StateFullError, StepsExceededError
from sparkext.streaming.cql.language.problems import CqlProblems
from tests.oracle.cql import exact, run_graph
from tests.streaming.cql.graphs import Program, graph, random_rows, run_engine, together

PROGRAMS = 25
UNTIL = 28

interpreted = pytest.mark.skipif(JIT_ENABLED, reason="it takes long to compile")


@interpreted
@pytest.mark.parametrize("block", range(3))
def test_random_graphs_are_what_they_mean(block: int) -> None:
    compared, seed = 0, 10_000 * block
    while compared < PROGRAMS:
        seed += 1
        assert seed < 10_000 * block + 20 * PROGRAMS, "most programs can be run"
        program, draw = Program(seed), random.Random(seed)
        try:
            queries = graph(program.text)
        except CqlProblems:  # a cycle without a delay, or incompatible types
            continue
        rows = random_rows(draw, draw.randint(0, 8), 20)
        inputs = {
            "i0": random_rows(draw, draw.randint(0, 12), 20),
            "i1": [(time, (row[0] or 0, *row[1:])) for time, row in rows],
        }
        cuts = sorted({draw.randint(0, 25) for _ in range(draw.randint(0, 3))})
        serial, as_one, batch = draw.random() < 0.25, draw.random() < 0.25, draw.choice([1, 2, 5, 100])
        try:
            found = run_engine(
                queries,
                program.outputs,
                inputs,
                UNTIL,
                cuts,
                limit=50,
                serial=serial,
                together=as_one,
                batch=batch,
            )
        except StepsExceededError:  # its rows grow from ε to ε
            continue
        if sum(map(len, found.values())) > 600:
            continue
        needed = queries.needed(program.outputs)
        if serial:
            expected = run_graph(needed, {}, UNTIL, serial=together(needed, inputs))
        else:
            expected = run_graph(needed, inputs, UNTIL)
        for name in program.outputs:
            assert [(time, exact(row)) for time, row in found[name]] == [
                (time, exact(row)) for time, row in expected[name]
            ], f"{name} of program {seed}, cut at {cuts}\n{program.text}"
        compared += 1


def test_the_papers_run() -> None:
    """Figures 3 and 4: 480 · 1000 of 3,000,000 leave 2,520,000, one ε after t1."""
    inputs = {
        "initial_resource": [(0, (3_000_000.0,))],
        "stock_events": [(0, ("a", 0)), (0, ("b", 0))],
        "market": [(10, ("a", 480.0)), (20, ("a", 470.0)), (30, ("b", 490.0)), (30, ("c", 490.0))],
    }
    queries = graph(TRADING)
    found = run_engine(queries, ["buy_event", "resource_stream"], inputs, 100)
    assert found == {
        "buy_event": [(10, ("a", 1000, 480.0)), (30, ("b", 1000, 490.0))],
        "resource_stream": [(0, (3_000_000.0,)), (10, (2_520_000.0,)), (30, (2_030_000.0,))],
    }
    assert found == {name: run_graph(queries, inputs)[name] for name in found}


@interpreted
@pytest.mark.parametrize("zeros", [(-0.0, 0.0), (0.0, -0.0)])
@pytest.mark.parametrize("cuts", [[], [1]])
def test_extremes_of_both_zeros_do_not_depend_on_their_order(zeros: tuple[float, float], cuts: list[int]) -> None:
    queries = graph(
        "REGISTER STREAM s (v double);"
        "REGISTER QUERY q ISTREAM(SELECT count(*) AS n, min(v) AS low, max(v) AS high FROM s [Range 5 us])"
    )
    found = run_engine(queries, ["q"], {"s": [(time, (value,)) for time, value in enumerate(zeros)]}, 2, cuts)
    assert [(n, str(low), str(high)) for _, (n, low, high) in found["q"] if n == 2] == [(2, "-0.0", "0.0")]


@interpreted
@pytest.mark.parametrize("seed", range(4))
def test_orders_never_exceed_the_cash(seed: int) -> None:
    """Offers of equal time compete for the cash: they are processed one by one."""
    draw = random.Random(seed)
    stocks = [f"s{number}" for number in range(40)]
    offers = [(draw.randint(1, 9), (draw.choice(stocks), float(draw.randint(300, 600)))) for _ in range(150)]
    inputs = {
        "initial_resource": [(0, (4_000_000.0,))],
        "stock_events": [(0, (name, 0)) for name in stocks],
        "market": sorted(offers, key=lambda offer: offer[0]),
    }
    queries = graph(TRADING)
    cuts = sorted({draw.randint(0, 9) for _ in range(3)})
    found = run_engine(queries, ["buy_event", "resource_stream"], inputs, 100, cuts, serial=True)
    expected = run_graph(queries, {}, serial=together(queries, inputs))
    assert found == {name: expected[name] for name in found}
    left = [row[0] for _, row in found["resource_stream"]]
    by_time = {time for time, _ in found["buy_event"]}
    assert len(by_time) < len(found["buy_event"])  # otherwise, no offers have competed
    assert 0 <= min(left) < 600_000
    spent = sum(row[1] * row[2] for _, row in found["buy_event"])
    assert spent <= 4_000_000.0 - min(left) + 1e-6
    at_once = run_engine(queries, ["buy_event", "resource_stream"], inputs, 100)["buy_event"]
    assert sum(row[1] * row[2] for _, row in at_once) > 4_000_000.0  # no offer sees the expense of another


@interpreted
def test_a_cycle_that_does_not_come_to_rest_fails() -> None:
    text = """
        REGISTER STREAM s (k int);
        REGISTER QUERY q ISTREAM(SELECT * FROM s [Now] UNION ALL SELECT k + 1 AS k FROM q [Now])<Now>;
    """
    with pytest.raises(StepsExceededError, match="1000 instants"):
        run_engine(graph(text), ["q"], {"s": [(5, (1,))]}, 100)
    counted = text.replace("SELECT k + 1 AS k FROM q [Now]", "SELECT k - 1 AS k FROM q [Now] WHERE k > 0")
    found = run_engine(graph(counted), ["q"], {"s": [(5, (900,))]}, 100)
    assert [row for _, row in found["q"]] == [(k,) for k in range(900, -1, -1)]


REACH = """
    REGISTER STREAM edges (a int, b int);
    REGISTER RECURSIVE QUERY reach SELECT a, b FROM edges [Range 4 us]
        UNION SELECT r.a, e.b FROM reach r, edges [Range 4 us] e WHERE r.b = e.a;
    REGISTER QUERY found ISTREAM(SELECT * FROM reach);
    REGISTER QUERY lost DSTREAM(SELECT * FROM reach);
"""


@interpreted
@pytest.mark.parametrize("rule", ["r.b = e.a", "r.b = e.a AND r.a <> e.b"])
def test_what_is_reached_follows_edges_that_come_and_go(rule: str) -> None:
    """With few nodes there are cycles, whose paths derive each other. They must not keep each other alive."""
    draw = random.Random(1)
    edges = sorted((draw.randint(0, 40), (draw.randrange(6), draw.randrange(6))) for _ in range(60))
    queries = graph(REACH.replace("r.b = e.a", rule))
    found = run_engine(queries, ["found", "lost"], {"edges": edges}, 100, [7, 20])
    expected = run_graph(queries, {"edges": edges}, 100)
    assert found == {name: expected[name] for name in found}
    assert len(found["found"]) == len(found["lost"]) > len(edges)


@interpreted
def test_a_recursion_that_does_not_end_fails() -> None:
    text = """
        REGISTER STREAM s (k int);
        REGISTER RECURSIVE QUERY more SELECT k FROM s [Now] UNION SELECT k + 1 AS k FROM more;
        REGISTER QUERY q ISTREAM(SELECT * FROM more);
    """
    with pytest.raises(StepsExceededError):
        run_engine(graph(text), ["q"], {"s": [(5, (1,))]}, 100)
    bounded = text.replace("FROM more;", "FROM more WHERE k < 1000;")
    found = run_engine(graph(bounded), ["q"], {"s": [(5, (2,))]}, 100)
    assert found["q"] == [(5, (k,)) for k in range(2, 1001)]


@interpreted
def test_a_state_that_is_too_large_fails() -> None:
    text = (
        "REGISTER STREAM s (k int); REGISTER QUERY q ISTREAM(SELECT count(*) AS n FROM s [Range Unbounded] GROUP BY k)"
    )
    rows = {"s": [(time, (time,)) for time in range(3000)]}
    with pytest.raises(StateFullError, match="bytes are not enough"):
        run_engine(graph(text), ["q"], rows, 3000, words=1 << 10)
    assert len(run_engine(graph(text), ["q"], rows, 3000, words=1 << 20)["q"]) == 3000


def test_many_rows_and_many_instants_at_one_time() -> None:
    text = """
        REGISTER STREAM s (k int);
        REGISTER STREAM go (k int);
        REGISTER QUERY r SELECT k, count(*) AS n, sum(k) AS t FROM s [Range 1 us] GROUP BY k;
        REGISTER QUERY q ISTREAM(SELECT * FROM r);
        REGISTER QUERY d DSTREAM(SELECT * FROM r);
        REGISTER QUERY down ISTREAM(SELECT k FROM go [Now] UNION ALL
            SELECT k - 1 AS k FROM down [Now] WHERE k > 0)<Now>;
    """
    rows, steps = (1_000_000, 100_000) if JIT_ENABLED else (700, 700)
    inputs = {"s": [(5, (place % 1000,)) for place in range(rows)], "go": [(5, (steps,))]}
    queries = graph(text)
    found = run_engine(queries, ["q", "d", "down"], inputs, 100, limit=steps + 10, words=1 << 24)
    keys = min(rows, 1000)
    assert found["q"] == [(5, (k, rows // keys, k * (rows // keys))) for k in range(keys)]
    assert found["d"] == [(6, row) for _, row in found["q"]]
    assert found["down"] == [(5, (k,)) for k in range(steps, -1, -1)]
    with pytest.raises(StepsExceededError, match=f"{steps} instants"):
        run_engine(queries, ["q", "d", "down"], {"s": [], "go": [(5, (steps,))]}, 100, limit=steps, words=1 << 24)
