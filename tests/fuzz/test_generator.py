"""The generator without Spark: it is reproducible, covers its grammar, and shrinks to the relevant part."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import pytest

from tests.fuzz.cases import CHAIN, Case, make_case
from tests.fuzz.graphs import SHAPES
from tests.fuzz.queries import KINDS
from tests.fuzz.reproducing import reproducer
from tests.fuzz.running import Outcome, Verdict, difference, kind_and_form
from tests.fuzz.shrinking import shrunk
from tests.fuzz.sql import Expr, Joined, TableSource, walk
from tests.fuzz.tables import WAYS, make_universe

UNIVERSES = 20
QUERIES = 12


@cache
def drawn() -> list[Case]:
    return draw()


def draw() -> list[Case]:
    universes = [make_universe(f"8/{number}") for number in range(UNIVERSES)]
    return [make_case(universe, number) for universe in universes for number in range(QUERIES)]


def test_a_name_stands_for_the_same_case() -> None:
    assert list(map(repr, drawn())) == list(map(repr, draw()))


def test_queries_cover_the_grammar() -> None:
    cases = drawn()
    found = Counter(type(node).__name__ for case in cases for node in walk(case.query))
    assert all(found[name] > 5 for name in ("SetOperation", "With", "Ordered", "Group", "Derived", "Joined")), found
    kinds = {node.kind for case in cases for node in walk(case.query) if isinstance(node, Joined)}
    assert set(KINDS) <= kinds
    words = " ".join(case.query.sql() for case in cases)
    for word in (
        "NOT IN (SELECT",
        "NOT EXISTS (",
        "OVER (",
        "LATERAL",
        "USING",
        "NATURAL",
        "<=>",
        "BETWEEN",
        "_metadata",
    ):
        assert word in words, word
    assert {case.shape for case in cases} == {CHAIN, *SHAPES}
    for word in (
        "HAVING",
        "FILTER (WHERE",
        "count(DISTINCT",
        "sum(DISTINCT",
        "avg(",
        "stddev",
        "bit_xor(",
        "CUBE (",
        "substring(",
    ):
        assert word in words, word
    assert {table.storage.way for case in cases for table in case.universe.tables} == set(WAYS)


def test_a_query_shrinks_to_the_join_that_is_wrong() -> None:
    def has_full_join(case: Case) -> bool:
        return any(isinstance(node, Joined) and node.kind == "FULL" for node in walk(case.query))

    # Shrinking lists of thousands of elements is slow.
    cases = [case for case in drawn() if has_full_join(case) and len(case.query.sql()) < 2_000]
    case = max(cases, key=lambda case: len(case.query.sql()))
    smaller = shrunk(case, has_full_join)
    sources = [node for node in walk(smaller.query) if isinstance(node, TableSource)]
    assert has_full_join(smaller) and len(sources) == 2, smaller.query.sql()
    assert len(smaller.query.sql()) < 120 < len(case.query.sql())
    assert not smaller.settings and not any(table.rows for table in smaller.universe.tables)


def test_arguments_of_expressions_stay_complete() -> None:
    expression = Expr("({} BETWEEN {} AND {})", "bool", tuple(Expr(str(number), "int") for number in range(3)))
    assert expression.sql() == "(0 BETWEEN 1 AND 2)" and expression.bare() == "0 BETWEEN 1 AND 2"
    listed = Expr("({ OR })", "bool", (expression, expression))
    assert listed.sql() == "(0 BETWEEN 1 AND 2 OR 0 BETWEEN 1 AND 2)" == listed.bare()


def test_what_is_written_down_is_the_case() -> None:
    for case in drawn()[::40]:
        names: dict[str, object] = {"__name__": "written"}
        exec(reproducer(case, Verdict(Outcome(), Outcome(), "rows", "one\nor another"), "a command"), names)
        assert repr(names["UNIVERSE"]) == repr(case.universe)
        assert names["QUERY"] == case.query and names["SETTINGS"] == case.settings


def rows_of(*rows: tuple[Any, ...]) -> Outcome:
    return Outcome(list(map(repr, rows)), list(rows))


@pytest.mark.parametrize(
    ("ours", "own", "ordered", "kind"),
    [
        (Outcome(["a", "b"]), Outcome(["b", "a"]), False, ""),
        (Outcome(["a", "b"]), Outcome(["b", "a"]), True, "order"),
        (Outcome(["a", "a"]), Outcome(["a"]), False, "rows"),
        (Outcome([], schema=[("a", "int", True)]), Outcome([], schema=[("a", "int", False)]), False, "schema"),
        (Outcome(["(None,)"], nulls=[0]), Outcome(["(None,)"]), False, "schema"),
        (rows_of((1, 2.0), (1, 0.1)), rows_of((1, 0.1), (1, 2.0000000001)), False, ""),
        (rows_of((1, 2.0), (1, 0.1)), rows_of((1, 0.1), (1, 2.0001)), False, "rows"),
        (rows_of((1, math.nan), (2, None)), rows_of((2, None), (1, math.nan)), False, ""),
        (rows_of((1, None)), rows_of((1, 0.0)), False, "rows"),
        (Outcome(error="ONE"), Outcome([]), False, "error"),
        (Outcome([]), Outcome(error="ONE"), False, "missing error"),
        (Outcome(error="ONE"), Outcome(error="OTHER"), False, "other error"),
        (Outcome(error="ONE"), Outcome(error="ONE"), False, ""),
    ],
)
def test_outcomes_differ(ours: Outcome, own: Outcome, ordered: bool, kind: str) -> None:
    found, told = difference(ours, own, ordered, about=[1])
    assert found == kind and bool(told) == bool(kind)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("inner r1.k = r2.k", ("inner", "equal keys")),
        ("left r1.k <=> r2.k AND (r1.v < r2.v)", ("left", "equal keys and more")),
        ("semi r1.k < r2.k", ("semi", "ranges")),
        ("anti ((r1.k = r2.k) OR (r1.v < r2.v))", ("anti", "every pair")),
    ],
)
def test_joins_are_told_apart_by_their_labels(label: str, expected: tuple[str, str]) -> None:
    assert kind_and_form(label) == expected
