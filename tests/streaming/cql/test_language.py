"""The meaning of CQL texts, and the errors of wrong texts with their positions."""

from __future__ import annotations

import pytest

from bench.cases.streams.trading import TRADING
from sparkext.streaming.cql.language.binder import bind
from sparkext.streaming.cql.language.drawing import draw_graph
from sparkext.streaming.cql.language.parser import parse
from sparkext.streaming.cql.language.partitioning import GraphPartitioning, PartitioningObstacle, find_partitioning
from sparkext.streaming.cql.language.problems import CqlProblems
from sparkext.streaming.cql.language.types import spell_type
from tests.streaming.cql.graphs import STREAMS, graph

S = "REGISTER STREAM s (a int, b string, c double, d date, t timestamp NOT NULL);"


def problems(text: str, missing_delay: str = "error") -> list[str]:
    with pytest.raises(CqlProblems) as raised:
        graph(text, missing_delay)
    return [*raised.value.problems]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1, column 1: the text ends, expected REGISTER"),
        ("x", "line 1, column 1: found 'x', expected REGISTER"),
        ("REGISTER STREAM s (a int", "line 1, column 25: the text ends, expected one of '(', ')', ',', NOT"),
        ("REGISTER QUERY q SELECT FROM s", "line 1, column 25: found 'FROM', expected one of '(', '*'"),
        (
            f"{S}\nREGISTER QUERY q ISTREAM(SELECT a FROM s [Now])<",
            "line 2, column 49: the text ends, expected one of NOW",
        ),
        (f"{S}\nREGISTER QUERY q SELECT a ? 1 FROM s [Now]", "line 2, column 27: found '?', expected one of "),
        (f"{S}\nREGISTER QUERY q SELECT a FROM s [Range 5 eons]", "line 2, column 41: 'eons' is not a unit of time"),
        (
            f"{S}\nREGISTER QUERY q SELECT a FROM s [Rows 0]",
            "line 2, column 34: a number of rows of 0: expected more than 0",
        ),
        (
            f"{S}\nREGISTER QUERY q ISTREAM[1 s](SELECT a FROM s [Now])",
            "ISTREAM has no period: only RSTREAM has a period",
        ),
    ],
)
def test_a_text_that_is_no_cql(text: str, told: str) -> None:
    (found,) = problems(text)
    assert told in found


@pytest.mark.parametrize(
    ("select", "told"),
    [
        ("SELECT z FROM s [Now]", "column 25: there is no column z. Columns: s.a, s.b, s.c, s.d, s.t"),
        ("SELECT x.a FROM s [Now]", "column 25: there is no source x. Sources: s"),
        ("SELECT a FROM s [Now] x, s [Now] y", "column 25: column a is in several sources (x, y)"),
        ("SELECT a FROM s [Now], s [Rows 1]", "two sources are named s: rename one of them with AS"),
        ("SELECT a FROM s", "column 32: s is a stream: it needs a window"),
        ("SELECT a FROM r [Now]", "column 34: r is a relation: only streams have windows"),
        ("SELECT a FROM u [Now]", "u is not registered. Registered names: s, r, q"),
        ("SELECT a + b AS x FROM s [Now]", "column 25: + of string: expected a number"),
        ("SELECT a = b AS x FROM s [Now]", "column 25: = of int and string: use CAST"),
        ("SELECT d < t AS x FROM s [Now]", "< of date and timestamp: use CAST"),
        ("SELECT CASE WHEN a THEN 1 END AS x FROM s [Now]", "WHEN of int: expected boolean"),
        ("SELECT nosuch(a) AS x FROM s [Now]", "there is no function nosuch, expected one of count sum"),
        ("SELECT sum(a, c) AS x FROM s [Now]", "SUM of 2 arguments: expected one argument"),
        ("SELECT max(*) AS x FROM s [Now]", "MAX(*) is not supported: only COUNT counts rows"),
        ("SELECT CAST(c AS int) AS x FROM s [Now]", "CAST of double to int is not supported"),
        ("SELECT CAST(c AS money) AS x FROM s [Now]", "there is no type money, expected one of boolean"),
        ("SELECT NULL AS x FROM s [Now]", "a column of NULL has no type: use CAST"),
        ("SELECT DATE '2026-13-01' AS x FROM s [Now]", "'2026-13-01' is not a date"),
        ("SELECT a, count(*) AS n FROM s [Now]", "column 25: column a is neither in GROUP BY nor in an aggregate"),
        ("SELECT a FROM s [Now] WHERE count(*) > 1", "COUNT is an aggregate: use it only in SELECT and HAVING"),
        ("SELECT a FROM s [Now] UNION SELECT b FROM s [Now]", "UNION of column a (int) and column b (string)"),
        ("SELECT a FROM s [Now] UNION SELECT a, b FROM s [Now]", "UNION of 1 and 2 columns"),
        ("SELECT a, c AS a FROM s [Now]", "two columns of q are named a: rename one of them with AS"),
        ("SELECT * FROM q", "the columns of q cannot be derived: it reads only itself"),
        ("RSTREAM(SELECT a FROM s [Rows 1])", "RSTREAM of q emits all rows at every instant: add a period"),
    ],
)
def test_a_query_that_means_nothing(select: str, told: str) -> None:
    (found,) = problems(f"{S} REGISTER QUERY r SELECT a FROM s [Now];\nREGISTER QUERY q {select}")
    assert found.startswith("line 2, column ")
    assert told in found


def test_all_problems_are_told() -> None:
    told = problems(f"{S} REGISTER QUERY q SELECT z FROM s [Now]; REGISTER QUERY r SELECT a FROM s")
    assert len(told) == 2
    told = problems("REGISTER STREAM s (a decimal(5,2), b int, B int); REGISTER QUERY S SELECT 1 AS a FROM s [Now]")
    assert ["cast it to double or bigint in the DataFrame" in one for one in told] == [False, True, False]


@pytest.mark.parametrize(
    "relation",
    [
        "SELECT a FROM s [Now] UNION ALL SELECT a FROM q",
        "SELECT a FROM s [Now] EXCEPT SELECT a FROM q",
        "SELECT a FROM s [Now] UNION SELECT max(a) AS a FROM q",
    ],
)
def test_what_has_no_least_set_is_not_recursive(relation: str) -> None:
    (told,) = problems(f"{S}\nREGISTER RECURSIVE QUERY q {relation}")
    assert told.startswith("line 2, column 1: q is recursive, but not a UNION of SELECT without aggregates")
    others = "REGISTER RECURSIVE QUERY q SELECT a FROM s [Now] UNION SELECT a FROM r; REGISTER QUERY r SELECT a FROM q"
    assert "the cycle q ▶ r ▶ q has no delay" in problems(f"{S}\n{others}")[0]


def test_types_of_recursive_queries_are_found() -> None:
    text = """
        REGISTER STREAM s (a int NOT NULL);
        REGISTER QUERY q ISTREAM(SELECT a FROM s [Now] UNION ALL SELECT r.a * 0.5 AS a FROM r)<Now>;
        REGISTER QUERY r SELECT a FROM q [Rows 1];
    """
    found = bind(parse(text)).queries
    for name in ("q", "r"):
        assert [(one.name, spell_type(one.type), one.nullable) for one in found[name].columns] == [
            ("a", "double", False)
        ]


CYCLE = f"""{S}
    REGISTER QUERY q ISTREAM(SELECT a FROM s [Now] UNION ALL SELECT r.a FROM r);
    REGISTER QUERY r SELECT a FROM q [Rows 1]
"""


def test_a_cycle_without_a_delay_is_refused() -> None:
    (told,) = problems(CYCLE)
    assert told.startswith("line 2, column 5: the cycle q ▶ r ▶ q has no delay")
    assert "add a delay, as in ISTREAM(…)<Now> in q" in told
    relations = CYCLE.replace("ISTREAM(", "").replace("FROM r)", "FROM r").replace("FROM q [Rows 1]", "FROM q")
    assert "make one of the queries a stream, as in ISTREAM(…)<Now>" in problems(relations, "insert")[0]


def test_a_missing_delay_is_inserted() -> None:
    found = graph(CYCLE, "insert")
    assert (found.inserted, found.queries["q"].delay) == (("q",), 0)
    assert graph(TRADING.replace("<Now>", ""), "insert").inserted == ("resource_stream", "stock_stream")


def test_order_cycles_and_what_is_monotone() -> None:
    found = graph(TRADING)
    order = [*found.order]
    assert order.index("resource") < order.index("buy_event") < order.index("resource_stream")
    assert found.components == (found.order,)
    assert [name for name in found.queries if not found.is_monotone(name)] == ["resource", "stock"]
    assert found.may_go_on == ()
    assert graph(TRADING.replace("<Now>", "<1 second>")).may_go_on == ("resource_stream", "stock_stream")


KEYED = """
    REGISTER STREAM a (k int, v double); REGISTER STREAM b (x bigint, k int);
    REGISTER QUERY r SELECT k, sum(v) AS s FROM a [Range 10 seconds] GROUP BY k;
    REGISTER QUERY o ISTREAM(SELECT r.k, s, x FROM r, b [Partition By k Rows 2] WHERE r.k = b.k AND s > x);
"""


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ("", "", None),
        ("WHERE r.k = b.k AND s > x", "WHERE s > x", "o: it does not join r and b by k = k"),
        ("[Partition By k Rows 2]", "[Rows 2]", "o: [Rows 2] of b counts rows of all keys: add PARTITION BY k"),
        (
            "SELECT k, sum(v) AS s FROM a [Range 10 seconds] GROUP BY k",
            "SELECT 1 AS k, sum(v) AS s FROM a [Now]",
            "r: it",
        ),
        ("b (x bigint, k int)", "b (x bigint, k bigint)", "o: it does not join"),
    ],
)
def test_a_key_is_found_or_what_forbids_one(was: str, now: str, told: str | None) -> None:
    found = find_partitioning(graph(KEYED.replace(was, now)))
    if told is None:
        assert isinstance(found, GraphPartitioning)
        assert found.columns == {"a": 0, "b": 1, "r": 0, "o": 0}
    else:
        assert isinstance(found, PartitioningObstacle)
        assert f"{found.query}: {found.reason}".startswith(told)


def test_a_recursive_graph_is_cut_by_its_key() -> None:
    found = find_partitioning(
        graph("""
            REGISTER STREAM s (k string, n int);
            REGISTER QUERY left_stream ISTREAM(SELECT k, 100 AS n FROM s [Now] UNION ALL
                SELECT l.k, l.n - t.n AS n FROM quota l, taken [Now] t WHERE l.k = t.k)<Now>;
            REGISTER QUERY quota SELECT * FROM left_stream [Partition By k Rows 1];
            REGISTER QUERY taken ISTREAM(SELECT s.k, s.n FROM s [Now], quota q WHERE s.k = q.k AND q.n >= s.n);
        """)
    )
    assert isinstance(found, GraphPartitioning)
    assert {*found.columns.values()} == {0}
    assert isinstance(find_partitioning(graph(TRADING)), PartitioningObstacle)


def test_drawings_have_all_names_and_delays() -> None:
    drawn = draw_graph(graph(TRADING)).mermaid
    for name in graph(TRADING).queries:
        assert f". {name}<br>" in drawn
    assert drawn.count('-. "ε" .->') == 2, "one for each delay"
    without = draw_graph(graph(STREAMS + "REGISTER QUERY q ISTREAM(SELECT k FROM i0 [Now])")).mermaid
    assert ":::cycle" in drawn and ":::cycle" not in without and "-." not in without
