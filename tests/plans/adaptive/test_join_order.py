"""Join orders: valid orders, the cheapest order, and the joins that may reduce a build side."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.adaptive.join_order import (
    JoinEstimate,
    choose_join_order,
    cost,
    count_movable,
    draw_join_order,
    find_prerequisites,
    find_reducers,
    has_choice,
    may_move,
)
from sparkext.plans.expressions.expression import Expression, column, condition
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.spec import AsOf, ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from sparkext.plans.pipeline.theta import NamedColumn, PythonPredicate

LONG = parse_key_type("int64")


def join(how: str, *sources: int) -> JoinSpec:
    """Return a join whose keys are columns of these sources."""
    return JoinSpec(how, tuple(KeyPair(ColumnRef(source, 0), 0, "int64", False) for source in sources), "auto", how)


def spec(*joins: JoinSpec) -> PipelineSpec:
    return PipelineSpec(1, joins, ())


FAILING = condition(
    "<", Expression("+", LONG, (column(0, 0, LONG), column(1, 0, LONG)), checked=True), column(1, 0, LONG)
)
HARMLESS = condition("<", column(0, 0, LONG), column(1, 0, LONG))
PREDICATE = PythonPredicate("", (NamedColumn("a", 0, 0, "int64"),), (NamedColumn("b", 1, 0, "int64"),))


@pytest.mark.parametrize(
    ("one", "moves"),
    [
        *((join(how, 0), True) for how in ("inner", "left", "semi", "anti", "existence")),
        *((join(how, 0), False) for how in ("right", "full")),
        (replace(join("inner"), theta=HARMLESS), True),
        (replace(join("inner"), theta=FAILING), False),
        (replace(join("inner"), theta=PREDICATE), False),
        (replace(join("inner", 0), guard=FAILING), False),
        (replace(join("inner", 0), condition=HARMLESS), True),
    ],
)
def test_what_may_move(one: JoinSpec, moves: bool) -> None:
    assert may_move(one) == moves


def test_what_may_fail_stays_and_so_does_what_comes_after_it() -> None:
    harmless, failing = join("inner", 0), replace(join("inner", 0), theta=FAILING)
    for before in range(3):
        assert count_movable(spec(*[harmless] * before, failing, harmless)) == before
    assert count_movable(spec(harmless, harmless)) == 2
    assert count_movable(spec()) == 0


def test_needs_are_the_sources_of_keys_ranges_conditions_and_alternatives() -> None:
    behind = ColumnRef(0, 0, ColumnRef(3, 0), "int64")
    chain = spec(
        join("inner", 0),
        replace(join("inner"), ranges=(RangePair(ColumnRef(1, 0), "<", 0, "int64"),)),
        replace(join("inner", 0), condition=condition("<", column(2, 0, LONG), column(3, 0, LONG))),
        replace(join("inner"), keys=(KeyPair(behind, 0, "int64", False),)),
        replace(join("left", 0), as_of=AsOf(ColumnRef(4, 0), 0, "int64", "backward")),
        replace(join("inner"), theta=condition("<", column(5, 0, LONG), column(6, 0, LONG))),
    )
    assert find_prerequisites(chain) == [frozenset(before) for before in ((), {0}, {1}, {2}, {3}, {4})]


def test_reducers_look_at_one_build_side_alone() -> None:
    sales = [join("inner", 0), join("inner", 1), join("anti", 1), join("semi", 1, 1)]
    others = [join("inner", 0), join("left", 1), join("inner", 0, 1), join("existence", 1)]
    assert find_reducers(spec(*sales, *others), 0) == (1, 2, 3)
    for how in ("left", "semi", "existence"):
        assert find_reducers(spec(join(how, 0), *sales[1:]), 0) == ()
    nearest = replace(sales[0], as_of=AsOf(ColumnRef(0, 0), 0, "int64", "backward"))
    assert find_reducers(spec(nearest, *sales[1:]), 0) == ()  # another row would be the nearest
    failing = replace(join("inner", 1), theta=FAILING)
    assert find_reducers(spec(sales[0], failing, sales[1]), 0) == ()
    assert find_reducers(spec(failing, *sales), 1) == ()


def test_a_choice() -> None:
    assert not has_choice([])
    assert not has_choice([frozenset()])
    assert not has_choice([frozenset(), frozenset({0}), frozenset({1})])
    assert has_choice([frozenset(), frozenset()])
    assert has_choice([frozenset(), frozenset({0}), frozenset({0})])


NONE: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("joins", "order"),
    [
        ([], ()),
        ([JoinEstimate(5.0, 1.0, NONE), JoinEstimate(0.1, 1.0, NONE)], (1, 0)),
        ([JoinEstimate(5.0, 1.0, NONE), JoinEstimate(0.1, 1.0, frozenset({0}))], (0, 1)),
        ([JoinEstimate(1.0, 1.0, NONE), JoinEstimate(0.99, 1.0, NONE)], (0, 1)),  # too little gain
        ([JoinEstimate(0.2, 3.0, NONE), JoinEstimate(0.2, 1.0, NONE)], (1, 0)),
        (  # TPC-DS 72: a fan-out, two joins that retain all rows, three that drop fanned-out rows
            [
                JoinEstimate(5.0, 2.0, NONE),
                JoinEstimate(1.0, 1.0, NONE),
                JoinEstimate(1.0, 1.0, frozenset({0})),
                JoinEstimate(0.2, 3.0, frozenset({0})),
                JoinEstimate(0.17, 1.0, frozenset({0})),
                JoinEstimate(0.21, 1.0, frozenset({0})),
            ],
            (0, 4, 5, 3, 1, 2),
        ),
    ],
)
def test_cheapest(joins: list[JoinEstimate], order: tuple[int, ...]) -> None:
    assert choose_join_order(joins) == order


@st.composite
def chains(draw: st.DrawFn, most: int) -> list[JoinEstimate]:
    return [
        JoinEstimate(
            draw(st.sampled_from([0.001, 0.1, 0.5, 1.0, 2.0, 50.0])),
            draw(st.sampled_from([1.0, 1.5, 10.0])),
            frozenset(draw(st.sets(st.integers(0, number - 1), max_size=2))) if number else NONE,
        )
        for number in range(draw(st.integers(0, most)))
    ]


def possible(needs: list[frozenset[int]], order: tuple[int, ...]) -> bool:
    return all(needs[number] <= {*order[:place]} for place, number in enumerate(order))


@given(chains(6))
def test_no_order_costs_clearly_less(joins: list[JoinEstimate]) -> None:
    needs = [one.needs for one in joins]
    orders = [order for order in itertools.permutations(range(len(joins))) if possible(needs, order)]
    chosen = choose_join_order(joins)
    assert chosen in orders
    assert has_choice(needs) == (len(orders) > 1)
    least = min(cost(joins, order) for order in orders)
    own = cost(joins, tuple(range(len(joins))))
    assert cost(joins, chosen) <= least * (1 + 1e-9) or (own * 0.9 <= least and chosen == tuple(range(len(joins))))


@given(chains(14))
def test_long_chains_have_possible_orders(joins: list[JoinEstimate]) -> None:
    needs = [one.needs for one in joins]
    for order in (choose_join_order(joins), draw_join_order(needs, 0), draw_join_order(needs, 1)):
        assert sorted(order) == list(range(len(joins)))
        assert possible(needs, order)
