"""The joins that drop rows while a build side is derived, and the places in its pipeline where they can do so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkext.plans.adaptive.early_drops import EarlyDrop, append_drops, find_early_drops, trace_columns
from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.projection import Projection
from sparkext.plans.pipeline.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec

LONG = parse_key_type("int64")
KEPT = tuple(Expression("column", None, column=number) for number in range(3))
QUOTIENT = Expression("%", LONG, (literal("1", LONG), column(0, 0, LONG)), checked=True)
Key = tuple[int, int, int]


def join(how: str, *keys: Key, kind: str = "int64", null_safe: bool = False) -> JoinSpec:
    """Return a join; keys are source and column on the probe side, and column of the build side."""
    pairs = tuple(KeyPair(ColumnRef(source, at), build, kind, null_safe) for source, at, build in keys)
    return JoinSpec(how, pairs, "auto", how)


def spec(*joins: JoinSpec) -> PipelineSpec:
    return PipelineSpec(2, joins, (ColumnRef(0, 0), ColumnRef(1, 1), ColumnRef(0, 1)))


PART = join("inner", (0, 0, 0))
BOTH = ((0, 0, 5), (0, 1, 6))


@pytest.mark.parametrize(
    ("dropping", "reduced", "columns"),
    [
        (PART, join("inner", *BOTH), (5,)),
        *((PART, join(how, *BOTH), (5,)) for how in ("left", "semi", "anti", "existence")),
        (replace(PART, how="semi"), join("inner", *BOTH), (5,)),
        (join("inner", (0, 1, 2), (0, 0, 3)), join("inner", *BOTH), (6, 5)),
        (PART, join("inner", (1, 0, 7)), (7,)),  # by the keys of the other build side
        (PART, join("inner", (1, 4, 7)), None),  # by another column of it
        *((replace(PART, how=how), join("inner", *BOTH), None) for how in ("left", "anti", "existence")),
        (join("inner", (0, 0, 0), (0, 2, 1)), join("inner", *BOTH), None),
        (join("inner", (0, 0, 0), null_safe=True), join("inner", *BOTH), None),
        (PART, join("inner", *BOTH, null_safe=True), None),
        (join("inner", (0, 0, 0), kind="int32"), join("inner", *BOTH), None),
        (PART, join("right", *BOTH), None),
    ],
)
def test_rows_that_are_found_by_dropped_keys(
    dropping: JoinSpec, reduced: JoinSpec, columns: tuple[int, ...] | None
) -> None:
    assert find_early_drops(spec(dropping, reduced), 1) == (() if columns is None else (EarlyDrop(0, columns),))


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti", "existence"])
def test_rows_whose_own_columns_are_dropped_keys(how: str) -> None:
    dropping = join("inner", (1, 4, 0))
    found = find_early_drops(spec(join(how, (0, 0, 0)), dropping), 0)
    assert found == ((EarlyDrop(1, (4,)),) if how == "inner" else ())


def test_what_may_fail_sees_all_rows() -> None:
    failing = replace(PART, guard=condition("=", QUOTIENT, literal("0", LONG)))
    assert find_early_drops(spec(failing, join("inner", *BOTH)), 1) == ()


def test_columns_are_followed_down() -> None:
    below, kept = spec(PART), Projection(None, KEPT)
    assert trace_columns(below, kept, (1, 0)) == (ColumnRef(1, 1), ColumnRef(0, 0))
    assert trace_columns(below, Projection(None, (QUOTIENT, *KEPT[1:])), (1,)) is None
    unchecked = Expression("+", LONG, (column(0, 0, LONG), column(0, 1, LONG)))
    assert trace_columns(below, Projection(None, (unchecked, *KEPT[1:])), (0,)) is None
    assert trace_columns(spec(join("existence", (0, 0, 0))), kept, (1,)) is None


@pytest.mark.parametrize(("function", "follows"), [("count", True), ("min", True), ("sum", False), ("first", False)])
def test_groups_are_dropped_whole(function: str, follows: bool) -> None:
    calls = (AggregateCall(function, column(0, 1, LONG)),)
    grouped = replace(spec(PART), outputs=(), aggregations=(Aggregation((column(1, 1, LONG),), calls, whole=True),))
    kept = Projection(None, KEPT[:2])
    assert trace_columns(grouped, kept, (0,)) == ((ColumnRef(1, 1),) if follows else None)
    assert trace_columns(grouped, kept, (1,)) is None


def test_drops_run_as_early_as_they_can() -> None:
    own = spec(PART, join("inner", (0, 1, 0)))
    extended, order = append_drops(own, (join("semi", (2, 3, 0)), join("semi", (1, 3, 0)), join("semi", (0, 0, 0))))
    assert extended.joins[:2] == own.joins
    assert order == [4, 0, 3, 1, 2]
