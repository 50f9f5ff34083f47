"""Decisions of a scan: the row groups of a split, pruning by statistics, and row groups that are read together."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.expressions import expression
from sparkext.plans.expressions.expression import ORDERINGS, Expression, among, condition, parse_expression
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.scan import (
    ColumnBounds,
    ScanColumn,
    ScanSpec,
    Split,
    divide_row_groups,
    may_hold,
    may_meet,
)
from tests.oracle.expressions import evaluate

VALUES = st.one_of(st.none(), st.integers(-5, 5))
ROWS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6)


INT = KeyType("int32")


def column(number: int) -> Expression:
    return expression.column(0, number, INT)


def literal(value: int | None) -> Expression:
    return expression.literal(None if value is None else str(value), INT)


def comparisons() -> st.SearchStrategy[Expression]:
    operands = st.tuples(st.builds(column, st.integers(0, 1)), st.builds(literal, VALUES))
    either_way = st.one_of(operands, operands.map(lambda pair: (pair[1], pair[0])))
    return st.builds(lambda op, pair: condition(op, *pair), st.sampled_from(["=", *ORDERINGS]), either_way)


def leaves() -> st.SearchStrategy[Expression]:
    null = st.builds(lambda number: condition("is_null", column(number)), st.integers(0, 1))
    listed = st.builds(
        lambda number, values: among(column(number), [None if value is None else str(value) for value in values]),
        st.integers(0, 1),
        st.lists(VALUES, min_size=1, max_size=3),
    )
    return st.one_of(comparisons(), null, listed)


def conditions() -> st.SearchStrategy[Expression]:
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.builds(lambda one: condition("not", one), inner),
            st.builds(
                lambda op, parts: condition(op, *parts),
                st.sampled_from(["and", "or"]),
                st.lists(inner, min_size=1, max_size=3),
            ),
        ),
        max_leaves=6,
    )


def holds(tested: Expression, row: tuple[int | None, ...]) -> bool:
    return evaluate(tested, {(0, number): value for number, value in enumerate(row)}) is True


def bounds_of(rows: list[tuple[int | None, ...]], number: int) -> ColumnBounds:
    known = [value for row in rows if (value := row[number]) is not None]
    nulls = len(rows) - len(known)
    return ColumnBounds(min(known), max(known), nulls) if known else ColumnBounds(nulls=nulls)


@given(conditions(), ROWS)
def test_nothing_that_holds_is_ruled_out(tested: Expression, rows: list[tuple[int | None, ...]]) -> None:
    may = may_hold(tested, lambda number: bounds_of(rows, number), len(rows))
    assert may or not any(holds(tested, row) for row in rows)
    assert may_hold(tested, lambda number: ColumnBounds(), len(rows)) or not any(holds(tested, row) for row in rows)


@pytest.mark.parametrize(
    ("op", "value", "may"),
    [
        *(("=", 2, False), ("=", 3, True), ("=", 7, True), ("=", 8, False)),
        *(("<", 3, False), ("<", 4, True), ("<=", 2, False), ("<=", 3, True)),
        *((">", 7, False), (">", 6, True), (">=", 8, False), (">=", 7, True)),
    ],
)
def test_comparisons_rule_out_what_lies_outside(op: str, value: int, may: bool) -> None:
    mirrored = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
    for tested in (condition(op, column(0), literal(value)), condition(mirrored[op], literal(value), column(0))):
        assert may_hold(tested, lambda number: ColumnBounds(3, 7, 0), 10) is may


@pytest.mark.parametrize(
    ("nulls", "null", "valid"), [(0, False, True), (4, True, True), (10, True, False), (None, True, True)]
)
def test_null_tests_ask_how_many_are_null(nulls: int | None, null: bool, valid: bool) -> None:
    is_null = condition("is_null", column(0))
    bounds = ColumnBounds(nulls=nulls)
    assert may_hold(is_null, lambda number: bounds, 10) is null
    assert may_hold(condition("not", is_null), lambda number: bounds, 10) is valid


def test_strings_decimals_and_lists_rule_out_too() -> None:
    words = ColumnBounds(b"beta", "düne".encode())
    string, decimal = KeyType("string"), KeyType("decimal", 5, 2)
    word, price = expression.column(0, 0, string), expression.column(0, 0, decimal)
    assert not may_hold(condition("=", word, expression.literal("alpha", string)), lambda number: words, 1)
    assert may_hold(condition("<=", word, expression.literal("beta", string)), lambda number: words, 1)
    prices = ColumnBounds(Decimal("1.10"), Decimal("2.00"))
    assert not may_hold(condition(">", price, expression.literal("2.00", decimal)), lambda number: prices, 1)
    assert may_hold(condition(">", price, expression.literal("1.99", decimal)), lambda number: prices, 1)
    listed = among(column(0), ("9", None, "1"))
    assert not may_hold(listed, lambda number: ColumnBounds(3, 7), 1)
    assert may_hold(listed, lambda number: ColumnBounds(3, 9), 1)


@pytest.mark.parametrize(
    ("low", "high", "keys", "may"),
    [
        (0, 9, (10, 20), False),
        (0, 10, (10, 20), True),
        (20, 30, (10, 20), True),
        (21, 30, (10, 20), False),
        (0, 99, None, False),
        (None, None, (10, 20), True),
        (None, None, None, False),
    ],
)
def test_joins_rule_out_keys_that_no_build_row_has(
    low: int | None, high: int | None, keys: tuple[int, int] | None, may: bool
) -> None:
    assert may_meet(ColumnBounds(low, high), keys) is may


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=20),
    st.lists(st.integers(1, 400), max_size=5),
)
def test_every_row_group_belongs_to_one_split(sizes: list[int], cuts: list[int]) -> None:
    offsets = [4 + sum(sizes[:number]) for number in range(len(sizes))]
    end = 4 + sum(sizes) + 30
    edges = sorted({0, end, *(cut for cut in cuts if cut < end)})
    splits = [Split("f", start, stop - start, ()) for start, stop in pairwise(edges)]
    for offset, size in zip(offsets, sizes, strict=True):
        assert sum(split.owns(offset, size) for split in splits) == 1


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 9)), max_size=20), st.integers(1, 10), st.integers(1, 20))
def test_row_groups_are_read_together_up_to_limits(groups: list[tuple[int, int]], rows: int, size: int) -> None:
    runs = divide_row_groups(groups, rows, size)
    assert [number for first, last in runs for number in range(first, last)] == list(range(len(groups)))
    for first, last in runs:
        total = [sum(column) for column in zip(*groups[first:last], strict=True)]
        assert last == first + 1 or (total[0] <= rows and total[1] <= size)


def test_json_gives_a_scan() -> None:
    is_null = {"op": "is_null", "type": "bool", "args": [{"op": "column", "type": None, "source": 0, "column": 1}]}
    data = {
        "columns": [{"name": "k"}, {"name": "day", "partition": 0}],
        "outputs": 1,
        "filter": is_null,
        "case_sensitive": True,
    }
    scan = ScanSpec.from_data(data)
    assert scan == ScanSpec((ScanColumn("k"), ScanColumn("day", 0)), 1, parse_expression(is_null), True)
    assert ScanSpec.from_data({name: data[name] for name in data if name != "filter"}).filter is None
    legacy = {"op": "column", "type": "decimal(7,-2)", "source": 0, "column": 0}
    with pytest.raises(ValueError, match="not covered by arrow"):
        ScanSpec.from_data({**data, "filter": {"op": "=", "type": "bool", "args": [legacy, legacy]}})
