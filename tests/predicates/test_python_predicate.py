"""Predicates in Python: those that share machine code, and that compiled code computes the same as Python."""

from __future__ import annotations

import itertools
import math
import random
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numba
import numpy as np
import pytest

from sparkext.kernels.indexes.matches import START
from sparkext.kernels.indexes.nested_loop import NestedLoop, PairTest
from sparkext.kernels.runtime.jit import freeze
from sparkext.predicates.compiler import WithConstants
from sparkext.predicates.python_predicate import (
    PredicateError,
    bind_predicate,
    compilable,
    evaluate,
    functions_of_predicate,
)

Predicate = Callable[[Any, Any], bool]
KINDS = {int: "int64", float: "float64", bool: "bool"}
SCALE: Any = 2


class Compiled:
    """Compiled tests by fingerprint, as workers cache them."""

    def __init__(self) -> None:
        self.tests: dict[str, PairTest] = {}

    def hits(self, predicate: Predicate, left: Sequence[Any], right: Sequence[Any]) -> list[tuple[int, int]]:
        """Return the pairs of positions that match: rows have one field, x and y."""
        fields = [[(name, KINDS[type(values[0])])] for name, values in (("x", left), ("y", right))]
        bound = bind_predicate(predicate, *fields)
        if bound.fingerprint not in self.tests:
            self.tests[bound.fingerprint] = PairTest(*functions_of_predicate(bound, *fields))

        def decide(probe: Sequence[np.generic], build: Sequence[np.generic]) -> bool:
            return evaluate(predicate, *fields, [probe, build])

        test = self.tests[bound.fingerprint].bound(bound.constants, decide)
        arrays = [
            (freeze(np.array(values, dtype="u1" if kind[0][1] == "bool" else kind[0][1])),)
            for values, kind in zip((left, right), fields, strict=True)
        ]
        loop = NestedLoop(test, *arrays, morsel_rows=len(left), build_side_rows=len(right))
        pairs, _, ended = loop.probe("inner", START, len(left) * len(right) + 1)
        assert ended and pairs.probe_rows is not None and pairs.build_rows is not None
        return sorted(zip(pairs.probe_rows.tolist(), pairs.build_rows.tolist(), strict=True))


def hits_in_python(predicate: Predicate, left: Sequence[Any], right: Sequence[Any]) -> list[tuple[int, int]]:
    rows = [
        [types.SimpleNamespace(**{name: value}) for value in values] for name, values in (("x", left), ("y", right))
    ]
    return [(i, j) for i, one in enumerate(rows[0]) for j, two in enumerate(rows[1]) if predicate(one, two)]


@pytest.fixture
def compiled() -> Compiled:
    return Compiled()


# Predicates that share their code.

LEFT, RIGHT = [0.0, 1.0, 2.5, 4.0], [-1.0, 0.5, 2.5]


def within(limit: Any) -> Predicate:
    return lambda left, right: abs(left.x - right.y) < limit * SCALE


def with_default(limit: Any) -> Predicate:
    return lambda left, right, limit=limit: abs(left.x - right.y) < limit


def among(table: Any) -> Predicate:
    return lambda left, right: table[int(left.x)] > right.y


@pytest.mark.parametrize(
    "predicates",
    [
        [within(limit) for limit in (0.1, 0.25, -0.0, 0.0, math.nan, math.inf, np.float64(1.5))],
        [within(limit) for limit in (0, 1, 2**62)],
        [with_default(limit) for limit in (0.1, 2.0, 1.5)],
        [among(np.array(table)) for table in ([1.0, 2, 3, 4, 5], [5.0, 4, 3, 2, 1, 0])],
    ],
    ids=["floats", "integers", "defaults", "arrays"],
)
def test_captured_numbers_are_arguments(compiled: Compiled, predicates: list[Predicate]) -> None:
    """One compilation and one type inference serve all values, and each value gives its own rows."""
    before, answers = compilable.made, set()
    for predicate in predicates * 2:
        found = compiled.hits(predicate, LEFT, RIGHT)
        assert found == hits_in_python(predicate, LEFT, RIGHT)
        answers.add(tuple(found))
    assert len(compiled.tests) == 1 and len(answers) > 1
    assert compilable.made - before <= 1


def test_2000_predicates_defined_in_a_loop_are_two_formulas(compiled: Compiled) -> None:
    """Half of them capture different numbers, like a query in foreachBatch that runs for days."""
    before = compilable.made
    for number in range(2_000):
        limit = number / 500 if number % 2 else 1.5
        near = lambda left, right: abs(left.x - right.y) < limit  # noqa: E731
        bound = bind_predicate(near, [("x", "float64")], [("y", "float64")])
        assert bound.constants == (limit,)
        if number % 100 < 2:
            assert compiled.hits(near, LEFT, RIGHT) == hits_in_python(near, LEFT, RIGHT)
    assert (compilable.made - before, len(compiled.tests)) == (1, 1)


def of(captured: Any) -> Predicate:
    return lambda left, right: left.x > captured


def helped(limit: Any, **options: Any) -> Predicate:
    helper = numba.njit(**options)(lambda value: value < limit)
    return lambda left, right: helper(left.x - right.y)


def deeper(limit: Any) -> Predicate:
    inner = numba.njit(lambda value: value < limit)
    helper = numba.njit(lambda value: inner(value))
    return lambda left, right: helper(left.x - right.y)


def module(**values: Any) -> types.ModuleType:
    made = types.ModuleType("settings")
    vars(made).update(values)
    return made


def of_module(settings: types.ModuleType) -> Predicate:
    return lambda left, right: left.x > settings.limit


def nested(limit: Any) -> Predicate:
    return lambda left, right: (lambda value: value > limit)(left.x)


def chosen(number: int) -> Predicate:
    pair = (1, 2.5)
    return lambda left, right: left.x > pair[number]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (of(1), of(1.0)),
        (of(1), of(True)),
        (of(1.0), of(np.float32(1.0))),
        (of(True), of(False)),
        (of(np.array([1.0])[0:1].sum()), of(1)),
        (helped(1.0), helped(2.0)),
        (helped(0.0), helped(-0.0)),
        (helped(1), helped(1.0)),
        (helped(1), helped(True)),
        (helped(1.0), helped(1.0, error_model="numpy")),
        (deeper(1.0), deeper(2.0)),
        (of_module(module(limit=1.0)), of_module(module(limit=2.0))),
        (chosen(0), chosen(1)),
        (lambda left, right: left.x > 1, lambda left, right: left.x > 1.0),
        (lambda left, right: left.x > 1, lambda left, right: left.x > True),
        (lambda left, right: left.x * 0.0 >= 1, lambda left, right: left.x * -0.0 >= 1),
        (lambda left, right: left.x > right.y, lambda left, right: left.x >= right.y),
        (lambda left, right: math.sin(left.x) > 0, lambda left, right: math.cos(left.x) > 0),
    ],
)
def test_what_differs_is_compiled_anew(one: Predicate, other: Predicate) -> None:
    fields = [("x", "float64")], [("y", "float64")]
    first, second, again = (bind_predicate(predicate, *fields).fingerprint for predicate in (one, other, one))
    assert first != second and first == again


@pytest.mark.parametrize("make", [of, helped, deeper, nested, within, with_default])
def test_equal_values_share_code(make: Callable[[Any], Predicate]) -> None:
    prints = {bind_predicate(make(1.5), [("x", "float64")], [("y", "float64")]).fingerprint for _ in range(3)}
    assert len(prints) == 1


def test_a_global_that_changes(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number, a module's attribute, and a global that only a helper reads."""
    settings = module(limit=0.5)
    helper = numba.njit(lambda value: value * SCALE)
    predicates = [within(1.0), of_module(settings), lambda left, right: helper(left.x) > right.y]
    answers = []
    for scale, limit in ((2, 0.5), (0.5, 3.0), (-1, 2.0)):
        monkeypatch.setattr(f"{__name__}.SCALE", scale)
        settings.limit = limit  # type: ignore[attr-defined]
        helper = numba.njit(helper.py_func)
        for predicate in predicates:
            found = compiled.hits(predicate, LEFT, RIGHT)
            assert found == hits_in_python(predicate, LEFT, RIGHT)
            answers.append(tuple(found))
    assert len(set(answers)) > 6


def test_a_column_named_like_captured_values(compiled: Compiled) -> None:
    bound = bind_predicate(
        lambda left, right: left.captured > SCALE, [("captured", "float64"), ("captured_", "int8")], []
    )
    assert bound.constants == (SCALE,)
    functions_of_predicate(bound, [("captured", "float64"), ("captured_", "int8")], [])


# Python's arithmetic.

INTEGERS = [0, 1, -1, 2, -3, 7, 62, 63, 64, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.5, -2.5, 3.7, 1e-308, 1e300, -1e300, 2.0**53, 2.0**63, math.inf, -math.inf]
FLOATS += [math.nan, *(random.Random(8).uniform(-100, 100) for _ in range(8))]
BOOLEANS = [False, True]

VALUES = {"I": INTEGERS, "F": FLOATS, "B": BOOLEANS}

OPERATIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("x + y", "x - y", "x * y", "x / y"), ("II", "IF", "BI")),
    **dict.fromkeys(("x // y", "x % y", "divmod(x, y)"), ("II", "FI", "FF")),
    **dict.fromkeys(("x ** y", "pow(x, y)"), ("II", "FF")),
    **dict.fromkeys(("x << y", "x >> y"), ("II", "BI")),
    **dict.fromkeys(("x & y", "x | y", "x ^ y"), ("II", "BB")),
    **dict.fromkeys(("x == y", "x < y"), ("II", "IF", "FI", "FF", "BI")),
    **dict.fromkeys(("x != y", "x <= y", "x > y", "x >= y"), ("IF",)),
    **dict.fromkeys(("min(x, y)", "max(x, y)"), ("II", "FF")),
    **dict.fromkeys(("-x", "+x", "abs(x)"), ("I", "F", "B")),
    **dict.fromkeys(("~x", "not x"), ("I", "B")),
    **dict.fromkeys(("int(x)", "round(x)", "math.floor(x)", "math.ceil(x)", "math.trunc(x)"), ("I", "F")),
    **dict.fromkeys(("x ** 2", "x ** 3", "x ** 0.5"), ("I", "F")),
    "x ** -1": ("F",),
    **dict.fromkeys(("x / 0", "x // 0.0", "x % 0"), ("I", "F")),
    **{f"math.{name}(x)": ("F",) for name in ("sqrt", "log", "log2", "log10", "log1p", "exp", "expm1", "sinh", "cosh")},
    **{f"math.{name}(x)": ("F",) for name in ("sin", "cos", "tan", "asin", "acos", "atanh", "acosh", "fabs", "isnan")},
    **{f"math.{name}(x, y)": ("FF",) for name in ("pow", "atan2", "copysign", "hypot")},
    "math.sqrt(x) ": ("I",),
    "math.gcd(x, y)": ("II",),
    "math.ldexp(x, y)": ("FI",),
    "math.gamma(x)": ("F",),
    "math.lgamma(x)": ("F",),
}
LAST_BIT = ("math.hypot", "math.gamma", "math.lgamma")
"""Another library than Python's computes these."""


def operations() -> Iterator[Any]:
    for text, domains in OPERATIONS.items():
        for domain in domains:
            yield pytest.param(text, domain, id=f"{text.strip()} of {domain}")


def outcome(function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
    """Return the value, or the type of what was raised."""
    try:
        return function(*values)
    except Exception as error:
        return type(error)


def is_same(one: Any, other: Any, digits: bool = False) -> bool:
    """Return whether values have the same type and bits."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(is_same, one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and digits and math.isfinite(one):
        return math.isclose(one, other, rel_tol=1e-13)
    return bool(one == other and math.copysign(1, one) == math.copysign(1, other)) or bool(
        one != one and other != other
    )


def is_plain(value: Any) -> bool:
    """Return whether no value is extreme: compiled code must compute such operands and results itself."""
    values = value if isinstance(value, tuple) else (value,)
    return all(isinstance(v, int | float) and abs(v) < 2**31 for v in values)


@pytest.mark.parametrize(("text", "domain"), list(operations()))
def test_numbers_compute_as_in_python(text: str, domain: str) -> None:
    """The same value to the last bit, or an exception, after which Python computes; for plain numbers, the value."""
    function = eval(f"lambda {', '.join('xy'[: len(domain)])}: {text}", {"math": math})
    counterpart = numba.njit(error_model="numpy", pipeline_class=WithConstants)(function)
    computed = 0
    for values in itertools.product(*(VALUES[kind] for kind in domain)):
        if re.search(r"<<|\*\*|pow", text) and domain == "II" and values[1] > 100:
            continue  # Python would compute an integer of that many digits
        expected, found = outcome(function, values), outcome(counterpart, values)
        if not isinstance(found, type):
            assert is_same(expected, found, text.startswith(LAST_BIT)), (values, expected, found)
            computed += 1
        elif not isinstance(expected, type):
            whole_power = re.search(r"\*\*|pow", text) and "F" not in domain and isinstance(expected, float)  # 2 ** -1
            assert whole_power or not is_plain(expected) or not is_plain(values), (values, expected, found)
    assert computed or "0" in text


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        (
            lambda left, right: max(left.x, right.y) > 1,
            "max of an integer and a float may return either type: convert one argument",
        ),
        (
            lambda left, right: np.int32(left.x) + 1 > 1,
            "arithmetic of int32 is not Python's: convert it to int or float",
        ),
        (lambda left, right: np.float32(left.x) * 2 > 1, "arithmetic of float32 is not Python's"),
        (lambda left, right: left.x + 2**63 > 1, "arithmetic of uint64 is not Python's"),
    ],
)
def test_arithmetic_that_is_refused(predicate: Predicate, reason: str) -> None:
    with pytest.raises(PredicateError, match=reason):
        bind_predicate(predicate, [("x", "int64")], [("y", "float64")])


@pytest.mark.parametrize(
    ("predicate", "error"),
    [
        (lambda left, right: left.x // right.y == 0, ZeroDivisionError),
        (lambda left, right: left.x % right.y == 0, ZeroDivisionError),
        (lambda left, right: left.x / right.y == 0, ZeroDivisionError),
        (lambda left, right: divmod(left.x, right.y) == (0, 0), ZeroDivisionError),
        (lambda left, right: left.x << right.y - 1 == 0, ValueError),
        (lambda left, right: math.sqrt(right.y - 1) > left.x, ValueError),
        (lambda left, right: math.log(right.y) > left.x, ValueError),
        (lambda left, right: (right.y - 0.5) ** 0.5 < left.x, TypeError),
        (lambda left, right: int(left.x * math.nan) == right.y, ValueError),
    ],
)
def test_errors_are_those_of_python(compiled: Compiled, predicate: Predicate, error: type[Exception]) -> None:
    for right in ([1, 2], [1, 0, 2]):
        expected = outcome(lambda: hits_in_python(predicate, [3, 4], right), ())
        found = outcome(lambda: compiled.hits(predicate, [3, 4], right), ())
        assert found == expected
    assert found is error


@pytest.mark.parametrize(
    "predicate",
    [
        lambda left, right: left.x + right.y > 2**62,
        lambda left, right: left.x * right.y == 2**124,
        lambda left, right: left.x**2 + right.y**2 > 2**100,
        lambda left, right: -left.x > 0,
        lambda left, right: 2**-left.x == 0.5 if abs(left.x) < 4 else True,
        lambda left, right: left.x / right.y > 1 if right.y else False,
        lambda left, right: left.x == float(right.y) and left.x != right.y,
    ],
)
def test_integers_do_not_overflow(compiled: Compiled, predicate: Predicate) -> None:
    """If 64 bits are not enough, Python computes."""
    small = [n for n in INTEGERS if n != 2**63]
    assert compiled.hits(predicate, small, small) == hits_in_python(predicate, small, small)
