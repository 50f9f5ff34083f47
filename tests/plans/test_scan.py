"""Decisions of a scan: which row groups a split owns, what statistics rule out, what is read together."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.predicate import Operand, Predicate, parse_predicate
from sparkext.plans.scan import ColumnBounds, ScanColumn, ScanSpec, Split, grouped, may_hold, may_meet

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
VALUES = st.one_of(st.none(), st.integers(-5, 5))
ROWS = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6)


def column(number: int) -> Operand:
    return Operand(0, number)


def literal(value: int | None) -> Operand:
    return Operand(None, text=None if value is None else str(value))


def comparisons() -> st.SearchStrategy[Predicate]:
    operands = st.tuples(st.builds(column, st.integers(0, 1)), st.builds(literal, VALUES))
    either_way = st.one_of(operands, operands.map(lambda pair: (pair[1], pair[0])))
    return st.builds(
        lambda op, pair: Predicate(op, operands=pair, type="int32"), st.sampled_from([*COMPARE]), either_way
    )


def leaves() -> st.SearchStrategy[Predicate]:
    null = st.builds(lambda number: Predicate("is_null", operands=(column(number),)), st.integers(0, 1))
    among = st.builds(
        lambda number, values: Predicate("in", operands=(column(number),), type="int32", texts=tuple(map(str, values))),
        st.integers(0, 1),
        st.lists(st.integers(-5, 5), min_size=1, max_size=3),
    )
    return st.one_of(comparisons(), null, among)


def predicates() -> st.SearchStrategy[Predicate]:
    return st.recursive(
        leaves(),
        lambda inner: st.one_of(
            st.builds(lambda one: Predicate("not", children=(one,)), inner),
            st.builds(
                lambda op, children: Predicate(op, children=tuple(children)),
                st.sampled_from(["and", "or"]),
                st.lists(inner, min_size=1, max_size=3),
            ),
        ),
        max_leaves=6,
    )


def holds(predicate: Predicate, row: tuple[int | None, ...]) -> bool | None:
    """SQL's three-valued logic, the obvious way."""
    if predicate.op == "not":
        inner = holds(predicate.children[0], row)
        return None if inner is None else not inner
    if predicate.op in ("and", "or"):
        results = [holds(child, row) for child in predicate.children]
        decisive = predicate.op == "or"
        if decisive in results:
            return decisive
        return None if None in results else not decisive
    values = [
        row[operand.column] if operand.source is not None else (None if operand.text is None else int(operand.text))
        for operand in predicate.operands
    ]
    if predicate.op == "is_null":
        return values[0] is None
    if predicate.op == "in":
        return None if values[0] is None else str(values[0]) in predicate.texts
    return None if None in values else COMPARE[predicate.op](*values)


def bounds_of(rows: list[tuple[int | None, ...]], number: int) -> ColumnBounds:
    known = [value for row in rows if (value := row[number]) is not None]
    nulls = len(rows) - len(known)
    return ColumnBounds(min(known), max(known), nulls) if known else ColumnBounds(nulls=nulls)


@given(predicates(), ROWS)
def test_nothing_that_holds_is_ruled_out(predicate: Predicate, rows: list[tuple[int | None, ...]]) -> None:
    may = may_hold(predicate, lambda number: bounds_of(rows, number), len(rows))
    assert may or not any(holds(predicate, row) for row in rows)
    assert may_hold(predicate, lambda number: ColumnBounds(), len(rows)) or not any(
        holds(predicate, row) for row in rows
    )


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
    for predicate in (
        Predicate(op, operands=(column(0), literal(value)), type="int64"),
        Predicate(mirrored[op], operands=(literal(value), column(0)), type="int64"),
    ):
        assert may_hold(predicate, lambda number: ColumnBounds(3, 7, 0), 10) is may


@pytest.mark.parametrize(
    ("nulls", "null", "valid"), [(0, False, True), (4, True, True), (10, True, False), (None, True, True)]
)
def test_null_tests_ask_how_many_are_null(nulls: int | None, null: bool, valid: bool) -> None:
    is_null = Predicate("is_null", operands=(column(0),))
    bounds = ColumnBounds(nulls=nulls)
    assert may_hold(is_null, lambda number: bounds, 10) is null
    assert may_hold(Predicate("not", children=(is_null,)), lambda number: bounds, 10) is valid


def test_strings_decimals_and_lists_rule_out_too() -> None:
    words = ColumnBounds(b"beta", "düne".encode())
    assert not may_hold(
        Predicate("=", operands=(column(0), Operand(None, text="alpha")), type="string"), lambda n: words, 1
    )
    assert may_hold(
        Predicate("<=", operands=(column(0), Operand(None, text="beta")), type="string"), lambda n: words, 1
    )
    among = Predicate("in", operands=(column(0),), type="int32", texts=("9", "1"))
    assert not may_hold(among, lambda number: ColumnBounds(3, 7), 1)
    assert may_hold(among, lambda number: ColumnBounds(3, 9), 1)


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
    runs = grouped(groups, rows, size)
    assert [number for first, last in runs for number in range(first, last)] == list(range(len(groups)))
    for first, last in runs:
        total = [sum(column) for column in zip(*groups[first:last], strict=True)]
        assert last == first + 1 or (total[0] <= rows and total[1] <= size)


def test_json_gives_a_scan() -> None:
    condition = {"op": "is_null", "args": [{"source": 0, "column": 1}], "type": None}
    data = {
        "columns": [{"name": "k"}, {"name": "day", "partition": 0}],
        "outputs": 1,
        "filter": condition,
        "case_sensitive": True,
    }
    scan = ScanSpec.from_data(data)
    assert scan == ScanSpec((ScanColumn("k"), ScanColumn("day", 0)), 1, parse_predicate(condition), True)
    del data["filter"]
    assert ScanSpec.from_data(data).filter is None
