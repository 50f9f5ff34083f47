"""Expressions that may fail, given the ranges of their columns. `test_expression_code` proves that none is missed."""

from __future__ import annotations

import pytest

from sparkext.plans.expressions import expression
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.expression_range import may_fail
from sparkext.plans.expressions.key_types import parse_key_type

MOST = 2**31 - 1


def column(kind: str = "int32", source: int = 0) -> Expression:
    return expression.column(source, 0, parse_key_type(kind))


def literal(value: float | None, kind: str = "int32") -> Expression:
    return expression.literal(None if value is None else str(value), parse_key_type(kind))


def call(op: str, *args: Expression, kind: str = "int32", checked: bool = True) -> Expression:
    return Expression(op, parse_key_type(kind), args, checked)


def cast(kind: str, number: Expression) -> Expression:
    return call("cast", number, kind=kind, checked=False)


A, B = column(), column(source=1)
X, Y = column("float64"), column("float64", source=1)
TOP = literal(MOST)
CASES = {
    "a sum": (call("+", A, B), (0, MOST - 5), (-3, 5), False),
    "a sum out of bounds": (call("+", A, B), (0, MOST - 5), (-3, 6), True),
    "one that wraps around": (call("+", A, B, checked=False), (0, MOST), (0, MOST), False),
    "what follows from one that wraps around": (
        call("+", call("+", A, TOP, checked=False), literal(1)),
        (0, 1),
        (0, 0),
        True,
    ),
    "a distance": (call("abs", call("-", A, B)), (-5, 9), (0, 2**31 - 10), False),
    "a distance too far": (call("abs", call("-", A, B)), (-5, 9), (0, MOST), True),
    "the distance that is none": (call("abs", A), (-(2**31), 0), (0, 0), True),
    "a negative one": (call("negate", A), (-MOST, 7), (0, 0), False),
    "a product": (call("*", A, B), (-(2**15), 2**15), (-9, 2**15), False),
    "a product out of bounds": (call("*", A, B), (-(2**16) - 1, 2**15), (-9, 2**15), True),
    "a rest": (call("+", call("%", A, B), TOP), (-9, 0), (1, 4), False),
    "a rest by zero": (call("%", A, B), (-9, 0), (0, 4), True),
    "a quotient": (call("/", X, Y, kind="float64"), (-9.0, 0.0), (0.5, float("inf")), False),
    "a quotient by zero": (call("/", X, Y, kind="float64"), (-9.0, 0.0), (-0.5, 0.5), True),
    "a quotient of nobody knows what": (call("/", X, Y, kind="float64"), None, None, True),
    "a quotient by a literal": (call("/", X, literal(2.5, "float64"), kind="float64"), None, None, False),
    "a quotient by a cast": (
        call("/", X, cast("float64", A), kind="float64"),
        (1, 5),
        (0, 0),
        False,
    ),
    "in a wider type": (
        call("+", cast("int64", A), cast("int64", TOP), kind="int64"),
        (0, MOST),
        (0, 0),
        False,
    ),
    "one of several": (call("+", call("greatest", A, B, checked=False), literal(1)), (0, 5), (0, MOST), True),
    "under a comparison": (
        call("and", call("<", call("+", A, B), TOP, kind="bool", checked=False), kind="bool", checked=False),
        (0, MOST),
        (0, 1),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_may_fail(name: str) -> None:
    tested, first, second, expected = CASES[name]
    kinds = [parse_key_type(kind) for kind in ("int32", "float64", "decimal(7,2)")]
    extents = {(source, 0, kind): (first, second)[source] for source in range(2) for kind in kinds}
    assert may_fail(tested, extents) is expected
