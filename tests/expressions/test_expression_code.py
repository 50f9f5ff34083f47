"""Code that is generated for expressions, against the oracle."""

from __future__ import annotations

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
from sparkext.expressions.expression_code import ColumnLocation, ExpressionCode, generate_expression_code
from sparkext.kernels.columns.buffers import unpack_validity
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.indexes.matches import START, Pairs
from sparkext.kernels.indexes.nested_loop import HIT, PairError, is_among, read_numbers
from sparkext.plans.expressions import expression
from sparkext.plans.expressions.evaluators import COMPILED as EVALUATOR
from sparkext.plans.expressions.expression import ARITHMETIC, ARITY, COMPARISONS, ColumnPlace, Expression
from sparkext.plans.expressions.expression_range import Interval, may_fail
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS, NUMBER_TYPES
from sparkext.predicates import theta_condition
from sparkext.predicates.theta_condition import bind_theta
from sparkext.rows.row_set import RowSet
from sparkext.storage.last_used import LruCache
from tests.oracle.expressions import Failure, evaluate, texts_of
from tests.support.kernel_inputs import FULL_MASK, SAMPLES, examples


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Silence numpy's scalars, which warn of integer overflow and of NaN."""
    with np.errstate(all="ignore"):
        yield


# Tables of one column per type. Expressions refer to a column of a side by the number of its type.


class Side:
    """Columns as Arrow arrays and as Python values, each twice: the second one has no nulls."""

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


def truth_of(formula: Expression, probe: Side, build: Side) -> list[list[bool | None]]:
    """Return whether each pair matches, or None if the evaluation fails."""
    columns = {(node.source, node.column) for node in formula.columns()}

    def truth(i: int, j: int) -> bool | None:
        row = {(source, number): (probe, build)[source].value(number, (i, j)[source]) for source, number in columns}
        try:
            return evaluate(formula, row) is True
        except Failure:
            return None

    return [[truth(i, j) for j in range(build.rows)] for i in range(probe.rows)]


def column(source: int, kind: str, number: int) -> Expression:
    return expression.column(source, number, parse_key_type(kind))


def literal(kind: str, text: str | None) -> Expression:
    return expression.literal(text, parse_key_type(kind))


def call(op: str, kind: str, *args: Expression, checked: bool = False) -> Expression:
    return Expression(op, parse_key_type(kind), args, checked)


def listed(value: Expression, *texts: str | None) -> Expression:
    return expression.among(value, texts)


# Any expression, without compiling it.

KINDS = (*NUMBER_TYPES, "date", "decimal(7,2)", "decimal(18,0)")


@st.composite
def expressions(draw: st.DrawFn, kind: str, depth: int) -> Expression:
    """Draw an expression of this type: a leaf, or a call of less deep expressions."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        if draw(st.integers(0, 4)):
            number = KINDS.index(kind) + draw(st.sampled_from([0, len(KINDS)]))
            return column(draw(st.integers(0, 1)), kind, number)
        return literal(kind, draw(st.sampled_from(texts_of(kind))))

    def deeper(of: str) -> Expression:
        return draw(expressions(of, depth - 1))

    op = draw(st.sampled_from(CALLS[kind]))
    if op in COMPARISONS:
        of = draw(st.sampled_from(KINDS))
        return call(op, kind, deeper(of), deeper(of))
    if op == "is_null":
        return call(op, kind, deeper(draw(st.sampled_from(KINDS))))
    if op == "in":
        of = draw(st.sampled_from(KINDS))
        return listed(deeper(of), *draw(st.lists(st.sampled_from(texts_of(of)), min_size=1, max_size=5)))
    if op == "cast":
        return call(op, kind, deeper(draw(st.sampled_from(CASTS[kind]))))
    if op == "days":
        return call("-", kind, deeper("date"), deeper("date"))
    if kind == "date" and op in ("+", "-"):
        return call(op, kind, deeper("date"), deeper("int32"))
    if kind == "decimal(7,2)" and op in ("+", "-", "*"):
        given = [kind, "decimal(18,0)"]
        if op == "*":
            return call(op, kind, *map(deeper, draw(st.permutations(given))))
        return call(op, kind, *(deeper(draw(st.sampled_from(given))) for _ in range(2)))
    if op == "if":
        return call(op, kind, deeper("bool"), deeper(kind), deeper(kind))
    args = [deeper(kind) for _ in range(ARITY.get(op) or draw(st.integers(1, 3)))]
    return call(op, kind, *args, checked=draw(st.booleans()))


CHOICES = ["if", "coalesce", "least", "greatest"]
CALLS = {
    "bool": [*COMPARISONS, "and", "and", "or", "or", "not", "is_null", "in", *CHOICES],
    **{kind: ["+", "-", "*", "%", "negate", "abs", "cast", *CHOICES] for kind in ("int8", "int16", "int64", "float32")},
    "int32": ["+", "-", "*", "%", "negate", "abs", "cast", "days", *CHOICES],
    "date": ["+", "-", *CHOICES],
    **{kind: ["+", "-", "*", "negate", "abs", "cast", *CHOICES] for kind in ("decimal(7,2)", "decimal(18,0)")},
    "float64": [*ARITHMETIC, "negate", "abs", "sqrt", "cast", *CHOICES],
}


CASTS = {
    **{kind: [*INTEGERS] for kind in INTEGERS},
    "int32": [*INTEGERS, "date"],
    "float32": [*INTEGERS, *FLOATS],
    "float64": [*INTEGERS, *FLOATS, "decimal(7,2)"],
    **{kind: [*INTEGERS, kind] for kind in ("decimal(7,2)", "decimal(18,0)")},
}


def as_python(formula: Expression, probe: Side, build: Side) -> Callable[[int, int], int]:
    """Return the generated functions without compilation, with numpy's scalars as machine words."""
    places: dict[ColumnPlace, ColumnLocation] = {}
    arrays: tuple[list[Any], list[Any]] = ([], [])
    kinds: list[str | None] = []
    for node in formula.columns():
        place = node.place
        if place in places:
            continue
        flat = arrays[node.source]
        array = (probe, build)[node.source].array(node.column)
        mask = unpack_validity(array)
        places[place] = ColumnLocation(node.source == 0, len(flat), None if mask is None else len(flat) + 1)
        flat += [read_numbers(array)] if mask is None else [read_numbers(array), mask]
        if node.source == 0:
            kinds += [node.number] if mask is None else [node.number, None]
    code = generate_expression_code(formula, places, kinds)
    load, holds = code.functions()
    # This function is an LLVM intrinsic, for which Python needs a substitute.
    holds.__globals__["is_among"] = getattr(is_among, "py_func", is_among)
    holds.__globals__["multiply_overflows"] = lambda one, other: not -(1 << 63) <= int(one) * int(other) < 1 << 63
    return lambda i, j: int(holds(load(arrays[0], i), code.constants, arrays[1], j))


def extent_of(side: Side, node: Expression) -> Interval:
    return theta_condition._measure_extent(theta_condition._convert_values(side.array(node.column), node.place[-1]))


@given(formula=expressions("bool", 4), seed=st.integers(0, 1 << 32))
@examples(600)
def test_any_expression(formula: Expression, seed: int) -> None:
    probe, build = Side(f"probe {seed}", KINDS, 5), Side(f"build {seed}", KINDS, 5)
    truth, verdict_of = truth_of(formula, probe, build), as_python(formula, probe, build)
    extents = {node.place: extent_of((probe, build)[node.source], node) for node in formula.columns()}
    assert may_fail(formula, extents) or None not in {verdict for row in truth for verdict in row}
    for i, row in enumerate(truth):
        for j, expected in enumerate(row):
            verdict = verdict_of(i, j)
            assert verdict == expected if expected is not None else verdict & ~HIT, (i, j)


# Every operator, compiled.

KEYS = (*NUMBER_TYPES, "date", "timestamp", "decimal(7,2)", "decimal(18,0)")


def a(key: str, nulls: bool = True) -> Expression:
    return column(0, key, KEYS.index(key) + (0 if nulls else len(KEYS)))


def b(key: str, nulls: bool = True) -> Expression:
    return column(1, key, KEYS.index(key) + (0 if nulls else len(KEYS)))


def everything_compared(one: Expression, other: Expression) -> Expression:
    """Return a formula with every comparison and connective, each of which decides some pairs."""
    less, more = call("<", "bool", one, other), call(">", "bool", one, other)
    least, most = call("<=", "bool", one, other), call(">=", "bool", one, other)
    equal = call("and", "bool", call("=", "bool", one, other), call("<=>", "bool", one, other))
    choice = call("if", "bool", equal, call("and", "bool", least, most), call("not", "bool", less))
    return call("or", "bool", choice, call("<=>", "bool", more, call("is_null", "bool", one)))


def arithmetic(kind: str, one: Expression, other: Expression, checked: bool) -> Expression:
    """Return a formula with every operator of integers and floats."""
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
    "days, microseconds and decimals": call(
        "or",
        "bool",
        call("<", "bool", call("-", "int32", a("date"), b("date")), literal("int32", "100")),
        call(
            ">",
            "bool",
            call("*", "decimal(18,2)", a("decimal(7,2)"), b("decimal(18,0)")),
            literal("decimal(18,2)", "4.50"),
        ),
        call("<", "bool", call("cast", "float64", a("decimal(7,2)")), b("float64")),
        call("=", "bool", a("timestamp"), b("timestamp")),
    ),
    "lists": call(
        "or",
        "bool",
        listed(a("float64"), "NaN", "0.0", "2.5", "NaN"),
        listed(call("+", "int64", a("int64"), b("int64")), *map(str, range(-3, 40_000)), None),
        call("not", "bool", listed(b("bool"), "true")),
        listed(a("decimal(7,2)"), "-1.00", None, "1.00"),
    ),
    "no column": call("=", "bool", literal("int8", "7"), literal("int8", "7")),
    "one side": call("is_null", "bool", b("int8")),
}


def operators(node: Expression) -> set[str]:
    return {node.op}.union(*map(operators, node.args))


def test_every_operator_is_compiled() -> None:
    assert set().union(*map(operators, COMPILED.values())) == {*EVALUATOR.operators}


def further_than(distance: str, modulus: str) -> Expression:
    rest = call("%", "int64", b("int64", nulls=False), literal("int64", modulus))
    return call(">", "bool", a("int64", nulls=False), call("+", "int64", rest, literal("int64", distance)))


def test_expressions_that_differ_in_their_literals_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each compiled formula costs megabytes of a worker permanently. Divisors are part of the code, for speed."""
    compiled: list[ExpressionCode] = []
    functions = ExpressionCode.functions
    monkeypatch.setattr(ExpressionCode, "functions", lambda code: compiled.append(code) or functions(code))
    monkeypatch.setattr(theta_condition, "tests", LruCache(256))
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
    """Pair by pair, and in a loop over all pairs of rows: rows without a failure, and rows with some."""
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
        with pytest.raises(PairError):
            holds([pair])
        with pytest.raises(PairError):
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
