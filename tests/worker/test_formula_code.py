"""Code made from formulas against a slow evaluation of the same formulas, which follows Spark step by step."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.build_sides.index_builder import build_index
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.kernels.buffers import validity
from sparkext.kernels.gather import Column
from sparkext.kernels.matches import START, Pairs
from sparkext.kernels.nested_loop import HIT, PairArithmeticError, is_among, numbers
from sparkext.plans import formula as formula_module
from sparkext.plans.formula import ARITHMETIC, NUMBER_TYPES, Formula, number_type
from sparkext.plans.formula_range import Interval, may_fail
from sparkext.plans.key_types import parse_key_type
from sparkext.plans.predicate import COMPARISONS
from sparkext.rows.row_set import RowSet
from sparkext.storage.last_used import LastUsed
from sparkext.worker import theta_condition
from sparkext.worker.formula_code import FormulaCode, Place, code_of
from sparkext.worker.theta_condition import bind_theta
from tests.kernels.support import FULL_MASK, SAMPLES, examples

INTEGERS = ("int8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Numpy's scalars warn where machine words wrap around, and of NaN."""
    with np.errstate(all="ignore"):
        yield


# What Spark makes of a formula, on Python's values: null is None, integers are exact until they are fitted.


class Failure(ArithmeticError):
    """Spark's evaluation comes upon an overflow or a division by zero in ANSI mode."""


def evaluate(node: Formula, row: dict[tuple[int, int], Any]) -> Any:
    """The value of a formula; what Spark would not look at, because of what it has seen before, cannot fail."""
    parts: Iterator[Any] = (evaluate(argument, row) for argument in node.args)
    if node.op == "column":
        return row[node.source, node.column]
    if node.op == "literal":
        return None if node.text is None else literal_value(node.type, node.text)
    if node.op in ("and", "or"):
        return connected(parts, decisive=node.op == "or")
    if node.op == "coalesce":
        return next((part for part in parts if part is not None), None)
    if node.op == "if":
        return evaluate(node.args[1 if next(parts) else 2], row)
    if node.op == "is_null":
        return next(parts) is None
    if node.op == "in":
        return among(node, next(parts))
    if node.op in ("<=>", "least", "greatest"):
        return of_all(node.op, [*parts])
    if node.op in ("/", "%"):
        return divided(node, evaluate(node.args[1], row), parts)
    values = []
    for part in parts:
        if part is None:
            return None
        values.append(part)
    return fitted(STRICT[node.op](*values), node)


def among(node: Formula, value: Any) -> bool | None:
    """As a chain of OR: a null in the list leaves open what is not found."""
    if value is None:
        return None
    known = [order(literal_value(node.args[0].type, text)) for text in node.texts if text is not None]
    return order(value) in known or (None if None in node.texts else False)


def literal_value(kind: str, text: str) -> Any:
    if kind == "bool":
        return text == "true"
    return float(text) if kind in FLOATS else int(text)


def connected(parts: Iterator[Any], decisive: bool) -> bool | None:
    result: bool | None = not decisive
    for part in parts:
        if part is decisive:
            return decisive
        result = None if part is None else result
    return result


def of_all(op: str, values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if op == "<=>":
        return len({*map(order, known)}) == 1 if len(known) == 2 else not known
    return (min if op == "least" else max)(known, key=order) if known else None


def divided(node: Formula, divisor: Any, parts: Iterator[Any]) -> Any:
    """Spark looks at the divisor first, and at the dividend only where that leaves it a chance."""
    if divisor is None or (divisor == 0 and not node.checked):
        return None
    dividend = next(parts)
    if dividend is None:
        return None
    if divisor == 0:
        raise Failure
    if node.op == "/":
        return dividend / divisor
    if node.type in FLOATS:
        return math.nan if math.isinf(dividend) else math.fmod(dividend, divisor)
    return abs(dividend) % abs(divisor) * (-1 if dividend < 0 else 1)


def order(value: Any) -> tuple[bool, Any]:
    """As Spark compares: NaN equals NaN and is larger than all others, 0.0 equals -0.0."""
    return (True, 0) if value != value else (False, value)


def fitted(value: Any, node: Formula) -> Any:
    """A result as a value of the node's type."""
    if node.type in FLOATS:
        return float(np.asarray(value).astype(node.type))
    if node.type in INTEGERS:
        limits = np.iinfo(node.type)
        if node.checked and not limits.min <= value <= limits.max:
            raise Failure
        return (value - int(limits.min)) % (1 << limits.bits) + int(limits.min)
    return value


STRICT: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "=": lambda one, other: order(one) == order(other),
    "<": lambda one, other: order(one) < order(other),
    "<=": lambda one, other: order(one) <= order(other),
    ">": lambda one, other: order(one) > order(other),
    ">=": lambda one, other: order(one) >= order(other),
    "negate": operator.neg,
    "abs": abs,
    "sqrt": lambda value: math.nan if value < 0 else math.sqrt(value),
    "cast": lambda value: value,
    "not": operator.not_,
}


# Tables of one column a type. Formulas refer to column k of a side by the number of its type.


class Side:
    """Columns as Arrow arrays, and as Python's values. They come twice: those of the second half have no nulls."""

    def __init__(self, seed: object, keys: Sequence[str], rows: int) -> None:
        self.keys, self.rows = [*keys, *keys], rows
        self._seed = seed
        self._made: dict[int, tuple[pa.Array, list[Any]]] = {}

    def _column(self, number: int) -> tuple[pa.Array, list[Any]]:
        if number not in self._made:
            generator = random.Random(f"{self._seed} {number}")
            sample = SAMPLES[self.keys[number]]
            picks = [generator.randrange(len(sample.raw)) for _ in range(self.rows)]
            valid = [2 * number >= len(self.keys) or generator.random() < 0.8 for _ in range(self.rows)]
            self._made[number] = sample.array(picks, valid, before=2), sample.keys(picks, valid)
        return self._made[number]

    def array(self, number: int) -> pa.Array:
        return self._column(number)[0]

    def value(self, number: int, row: int) -> Any:
        return self._column(number)[1][row]


def truth_of(formula: Formula, probe: Side, build: Side) -> list[list[bool | None]]:
    """Whether each pair matches, or None where that fails."""
    columns = {(node.source, node.column) for node in formula.columns()}

    def truth(i: int, j: int) -> bool | None:
        row = {(source, number): (probe, build)[source].value(number, (i, j)[source]) for source, number in columns}
        try:
            return evaluate(formula, row) is True
        except Failure:
            return None

    return [[truth(i, j) for j in range(build.rows)] for i in range(probe.rows)]


def column(source: int, key: str, number: int) -> Formula:
    kind = number_type(parse_key_type(key))
    assert kind is not None
    return Formula("column", kind, source=source, column=number, key=key)


def literal(kind: str, text: str | None) -> Formula:
    return Formula("literal", kind, text=text)


def call(op: str, kind: str, *args: Formula, checked: bool = False) -> Formula:
    return Formula(op, kind, args, checked)


def listed(value: Formula, *texts: str | None) -> Formula:
    return Formula("in", "bool", (value,), texts=texts)


# Any formula at all, without compiling it.


@st.composite
def formulas(draw: st.DrawFn, kind: str, depth: int) -> Formula:
    """A formula of this type: a leaf, or a call of formulas that are less deep."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        if draw(st.integers(0, 4)):
            number = NUMBER_TYPES.index(kind) + draw(st.sampled_from([0, len(NUMBER_TYPES)]))
            return column(draw(st.integers(0, 1)), kind, number)
        value = draw(st.sampled_from([None, *SAMPLES[kind].values]))
        return literal(kind, None if value is None else str(value).lower())

    def deeper(of: str) -> Formula:
        return draw(formulas(of, depth - 1))

    op = draw(st.sampled_from(CALLS[kind]))
    if op in COMPARISONS:
        of = draw(st.sampled_from(NUMBER_TYPES))
        return call(op, kind, deeper(of), deeper(of))
    if op == "is_null":
        return call(op, kind, deeper(draw(st.sampled_from(NUMBER_TYPES))))
    if op == "in":
        of = draw(st.sampled_from(NUMBER_TYPES))
        values = draw(st.lists(st.sampled_from([None, *SAMPLES[of].values]), min_size=1, max_size=5))
        return listed(deeper(of), *(None if value is None else str(value).lower() for value in values))
    if op == "cast":
        return call(op, kind, deeper(draw(st.sampled_from([*INTEGERS, *(FLOATS if kind in FLOATS else ())]))))
    if op == "if":
        return call(op, kind, deeper("bool"), deeper(kind), deeper(kind))
    least, most = formula_module.OPERANDS[op]
    args = [deeper(kind) for _ in range(draw(st.integers(least, min(most, 3))))]
    return call(op, kind, *args, checked=draw(st.booleans()))


CHOICES = ["if", "coalesce", "least", "greatest"]
CALLS = {
    "bool": [*COMPARISONS, "and", "and", "or", "or", "not", "is_null", "in", *CHOICES],
    **{kind: ["+", "-", "*", "%", "negate", "abs", "cast", *CHOICES] for kind in (*INTEGERS, "float32")},
    "float64": [*ARITHMETIC, "negate", "abs", "sqrt", "cast", *CHOICES],
}


def as_python(formula: Formula, probe: Side, build: Side) -> Callable[[int, int], int]:
    """The generated functions as they are, with numpy's scalars for machine words."""
    places: dict[tuple[int, int, str], Place] = {}
    arrays: tuple[list[Any], list[Any]] = ([], [])
    kinds: list[str | None] = []
    for node in formula.columns():
        place = (node.source, node.column, node.key)
        if place in places:
            continue
        flat = arrays[node.source]
        array = (probe, build)[node.source].array(node.column)
        mask = validity(array)
        places[place] = Place(node.source == 0, len(flat), None if mask is None else len(flat) + 1)
        flat += [numbers(array)] if mask is None else [numbers(array), mask]
        if node.source == 0:
            kinds += [node.type] if mask is None else [node.type, None]
    code = code_of(formula, places, kinds)
    load, holds = code.functions()
    # An intrinsic is none of Python's functions.
    holds.__globals__["is_among"] = getattr(is_among, "py_func", is_among)
    holds.__globals__["multiply_overflows"] = lambda one, other: not -(1 << 63) <= int(one) * int(other) < 1 << 63
    return lambda i, j: int(holds(load(arrays[0], i), code.constants, arrays[1], j))


def extent_of(side: Side, node: Formula) -> Interval:
    return theta_condition._extent(theta_condition._values(side.array(node.column), node.key))


@given(formula=formulas("bool", 4), seed=st.integers(0, 1 << 32))
@examples(600)
def test_any_formula(formula: Formula, seed: int) -> None:
    probe, build = Side(f"probe {seed}", NUMBER_TYPES, 5), Side(f"build {seed}", NUMBER_TYPES, 5)
    truth, verdict_of = truth_of(formula, probe, build), as_python(formula, probe, build)
    extents = {
        (node.source, node.column, node.key): extent_of((probe, build)[node.source], node) for node in formula.columns()
    }
    assert may_fail(formula, extents) or None not in {verdict for row in truth for verdict in row}
    for i, row in enumerate(truth):
        for j, expected in enumerate(row):
            verdict = verdict_of(i, j)
            assert verdict == expected if expected is not None else verdict & ~HIT, (i, j)


# Every operator, compiled.

KEYS = (*NUMBER_TYPES, "date", "timestamp", "decimal(7,2)", "decimal(18,0)")


def a(key: str, nulls: bool = True) -> Formula:
    return column(0, key, KEYS.index(key) + (0 if nulls else len(KEYS)))


def b(key: str, nulls: bool = True) -> Formula:
    return column(1, key, KEYS.index(key) + (0 if nulls else len(KEYS)))


def everything_compared(one: Formula, other: Formula) -> Formula:
    """Every comparison and connective: each decides about some pairs."""
    less, more = call("<", "bool", one, other), call(">", "bool", one, other)
    least, most = call("<=", "bool", one, other), call(">=", "bool", one, other)
    equal = call("and", "bool", call("=", "bool", one, other), call("<=>", "bool", one, other))
    choice = call("if", "bool", equal, call("and", "bool", least, most), call("not", "bool", less))
    return call("or", "bool", choice, call("<=>", "bool", more, call("is_null", "bool", one)))


def arithmetic(kind: str, one: Formula, other: Formula, checked: bool) -> Formula:
    """Every operator of integers and floats."""
    product = call("*", kind, one, other, checked=checked)
    difference = call("-", kind, call("abs", kind, product, checked=checked), other, checked=checked)
    rest = call("%", kind, difference, call("negate", kind, other, checked=checked), checked=checked)
    return call("<=", "bool", call("+", kind, rest, one, checked=checked), other)


DIVIDED = call("/", "float64", a("float64"), b("float64"), checked=True)
COMPILED = {
    "int64 checked": arithmetic("int64", a("int64"), b("int64", nulls=False), checked=True),
    "int64 wrapping": arithmetic("int64", a("int64"), b("int64"), checked=False),
    "int8 checked": arithmetic("int8", a("int8"), call("cast", "int8", b("int64")), checked=True),
    "float32": arithmetic("float32", a("float32", nulls=False), b("float32", nulls=False), checked=False),
    "comparisons": call(
        "and",
        "bool",
        everything_compared(call("cast", "float64", a("float32")), call("sqrt", "float64", b("float64"))),
        everything_compared(a("bool"), b("bool")),
        everything_compared(a("int16"), call("cast", "int16", b("int8"))),
    ),
    "what keeps a division from failing": call(
        "and",
        "bool",
        call("<", "bool", call("if", "float64", a("bool"), literal("float64", "-Infinity"), DIVIDED), a("float64")),
        call("or", "bool", call("is_null", "bool", b("int8")), call("<=", "bool", DIVIDED, literal("float64", "NaN"))),
        call("not", "bool", call("=", "bool", a("int32"), b("int32"))),
        call("<=>", "bool", call("coalesce", "float64", b("float64"), DIVIDED), b("float64")),
    ),
    "choices": call(
        "<",
        "bool",
        call("greatest", "float64", a("float64"), literal("float64", None), b("float64"), literal("float64", "-1")),
        call("least", "float64", b("float64"), call("coalesce", "float64", a("float64"), literal("float64", "2.5"))),
    ),
    "days, microseconds and unscaled digits": call(
        "or",
        "bool",
        call("<", "bool", call("-", "int32", a("date"), b("date")), literal("int32", "100")),
        call(">", "bool", call("*", "int64", a("decimal(7,2)"), literal("int64", "1000")), b("decimal(18,0)")),
        call("=", "bool", call("negate", "int64", a("timestamp")), b("timestamp")),
    ),
    "lists": call(
        "or",
        "bool",
        listed(a("float64"), "NaN", "0.0", "2.5", "NaN"),
        listed(call("+", "int64", a("int64"), b("int64")), *map(str, range(-3, 40_000)), None),
        call("not", "bool", listed(b("bool"), "true")),
        listed(a("decimal(7,2)"), "-100", None, "100"),
    ),
    "no column": call("=", "bool", literal("int8", "7"), literal("int8", "7")),
    "one side": call("is_null", "bool", b("int8")),
}


def operators(node: Formula) -> set[str]:
    return {node.op}.union(*map(operators, node.args))


def test_every_operator_is_compiled() -> None:
    assert set().union(*map(operators, COMPILED.values())) == {*formula_module.OPERANDS, "column", "literal"}


def further_than(distance: str, modulus: str) -> Formula:
    rest = call("%", "int64", b("int64", nulls=False), literal("int64", modulus))
    return call(">", "bool", a("int64", nulls=False), call("+", "int64", rest, literal("int64", distance)))


def test_formulas_that_differ_in_their_literals_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compiled one would take megabytes of a worker for good. Divisors are part of the code, for speed."""
    compiled: list[FormulaCode] = []
    functions = FormulaCode.functions
    monkeypatch.setattr(FormulaCode, "functions", lambda code: compiled.append(code) or functions(code))
    monkeypatch.setattr(theta_condition, "_compiled", LastUsed(theta_condition._KEPT_TESTS))
    probe, build = Side("probe", KEYS, 40), Side("build", KEYS, 40)
    far = [further_than(*texts) for texts in (("-5", "7"), ("5", "7"), ("5", "3"), ("-9223372036854775808",) * 2)]
    lists = [listed(call("-", "int64", a("int64"), b("int64")), *map(str, range(count))) for count in (3, 300)]
    for formula in (*far, *lists):
        truth = truth_of(formula, probe, build)
        loop = bind_theta(formula, 1, build_of(build, range(40))).loop(rows_of(probe, range(40)))
        pairs, _, _ = loop.probe("inner", START, 1600)
        assert pairs.length == sum(row.count(True) for row in truth)
    assert len(compiled) == 4


def rows_of(probe: Side, rows: Sequence[int]) -> RowSet:
    picked = pa.array(rows, pa.int32())
    columns = [Column.of(probe.array(number).take(picked)) for number in range(len(probe.keys))]
    return RowSet.of_morsel(columns, len(rows))


def build_of(build: Side, rows: Sequence[int]) -> BuildSide:
    picked = pa.array(rows, pa.int32())
    arrays = [build.array(number).take(picked) for number in range(len(build.keys))]
    columns = dict(enumerate(arrays))
    return BuildSide.of(len(rows), columns, *build_index(len(rows), arrays, IndexRecipe((), (), (), "auto", FULL_MASK)))


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    """Pair by pair, and in a loop over all pairs of rows of which none fails, and of some that do."""
    formula = COMPILED[name]
    probe, build = Side(f"probe {name}", KEYS, 60), Side(f"build {name}", KEYS, 50)
    truth = truth_of(formula, probe, build)
    whole = build_of(build, range(50))
    condition = bind_theta(formula, 1, whole)

    def holds(pairs: Sequence[tuple[int, int]]) -> list[bool]:
        ids = [np.array(ids, np.int32) for ids in zip(*pairs, strict=True)]
        given = Pairs(len(pairs), ids[0], ids[1])
        return condition.holds(rows_of(probe, range(60)).joined(given, whole.columns, outer=False)).tolist()

    fine = [(i, j) for i in range(60) for j in range(50) if truth[i][j] is not None]
    failing = [(i, j) for i in range(60) for j in range(50) if truth[i][j] is None]
    assert holds(fine) == [truth[i][j] for i, j in fine]
    for pair in failing[::20]:
        with pytest.raises(PairArithmeticError):
            holds([pair])
        with pytest.raises(PairArithmeticError):
            condition.loop(rows_of(probe, [pair[0]])).probe("inner", START, 1)
    few = sorted(range(60), key=lambda i: truth[i].count(None))[: 20 if failing else None]
    kept = [j for j in range(50) if all(truth[i][j] is not None for i in few)]
    pairs, _, ended = (
        bind_theta(formula, 1, build_of(build, kept)).loop(rows_of(probe, few)).probe("inner", START, 3000)
    )
    assert ended and pairs.probe_rows is not None and pairs.build_rows is not None
    got = [(few[i], kept[j]) for i, j in zip(pairs.probe_rows.tolist(), pairs.build_rows.tolist(), strict=True)]
    assert sorted(got) == [(i, j) for i in sorted(few) for j in kept if truth[i][j]]
    assert got and kept
