"""Which formulas may fail, by the extents of their columns. That no error is missed, `test_formula_code` asks."""

from __future__ import annotations

import pytest

from sparkext.plans.formula import Formula
from sparkext.plans.formula_range import may_fail

MOST = 2**31 - 1


def column(kind: str = "int32", source: int = 0) -> Formula:
    return Formula("column", kind, source=source, key=kind)


def literal(value: float | None, kind: str = "int32") -> Formula:
    return Formula("literal", kind, text=None if value is None else str(value))


def call(op: str, *args: Formula, kind: str = "int32", checked: bool = True) -> Formula:
    return Formula(op, kind, args, checked)


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
        call("/", X, Formula("cast", "float64", (A,)), kind="float64"),
        (1, 5),
        (0, 0),
        False,
    ),
    "in a wider type": (
        call("+", Formula("cast", "int64", (A,)), Formula("cast", "int64", (TOP,)), kind="int64"),
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
    formula, first, second, expected = CASES[name]
    extents = {(0, 0, "int32"): first, (1, 0, "int32"): second, (0, 0, "float64"): first, (1, 0, "float64"): second}
    assert may_fail(formula, extents) is expected
