"""The columnar evaluator against the oracle."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.expressions import vector_arithmetic
from sparkext.expressions.arrow_evaluator import ExpressionError, columns, holds, read_failing_values, values
from sparkext.kernels.columns.gather import Column
from sparkext.plans.expressions import expression
from sparkext.plans.expressions.evaluators import ARROW
from sparkext.plans.expressions.expression import (
    ARITHMETIC,
    ARITY,
    CASES,
    CHOICES,
    COMPARISONS,
    DATE_FIELDS,
    DATE_STARTS,
    DECIMAL_ARITHMETIC,
    ROUNDINGS,
    STRING_TESTS,
    TIMESTAMPS,
    TRIMS,
    Expression,
    among,
)
from sparkext.plans.expressions.key_types import KeyType, parse_key_type
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS, parse_unscaled
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type
from tests.oracle.expressions import Failure, evaluate, texts_of
from tests.oracle.rows import canonical
from tests.support.kernel_inputs import SAMPLES, examples

KINDS = [name for name in SAMPLES if not name.startswith("large")]
DECIMALS = [name for name in KINDS if name.startswith("decimal")]
TEXTS = ("string", "binary")
PATTERNS = ["", "%", "_", "a", "a%", "%a%b", "_b_", "%_", "ä", "\0", "\\%", "%\\_", "a\\\\_", "日_", "%c%_f_h"]
LETTERS = {"upper": "äÄ\nßSS", "lower": "Ää\n\nAZazÄÄää\n\n.."}
ROWS = 12


def kind_of(name: str) -> KeyType:
    return parse_key_type(name)


def call(op: str, kind: str | KeyType, *args: Expression, checked: bool = False) -> Expression:
    return Expression(op, kind if isinstance(kind, KeyType) else kind_of(kind), args, checked)


def literal(kind: str, text: str | None) -> Expression:
    return expression.literal(text, kind_of(kind))


CALLS: dict[str, list[str]] = {
    "bool": [*COMPARISONS, *STRING_TESTS, "and", "and", "or", "or", "not", "is_null", "in"],
    **{kind: ["+", "-", "*", "%", "negate", "abs", "cast"] for kind in (*INTEGERS, *FLOATS)},
    "int32": ["+", "-", "*", "%", "negate", "abs", "cast", "days", *DATE_FIELDS, "length"],
    "int64": ["+", "-", "*", "%", "negate", "abs", "cast", "unscaled", "floor", "ceil"],
    "float64": [*ARITHMETIC, "negate", "abs", "sqrt", "cast"],
    "date": ["+", "-", *DATE_STARTS, "last_day", "add_months", "to_date"],
    **{kind: ["to_timestamp", "to_timestamp"] for kind in TIMESTAMPS},
    "string": ["substring", "concat", *TRIMS, *CASES],
    **{kind: ["sum", "product", *DECIMAL_ARITHMETIC, "to_decimal", "cast", "negate", "abs"] for kind in DECIMALS},
}
CALLS["bool"] += ["is_nan"]
for integer in INTEGERS:
    CALLS[integer] += ["div", "pmod", *ROUNDINGS, "to_integer", "to_integer"]
for real in FLOATS:
    CALLS[real] += ["pmod", "nan_or"]
for decimal in DECIMALS:
    CALLS[decimal] += ["remainder", "pmod", *ROUNDINGS, *(["floor", "ceil"] if kind_of(decimal).scale == 0 else [])]
CASTS = {
    **{kind: [*INTEGERS] for kind in INTEGERS},
    "int32": [*INTEGERS, "date"],
    "float32": [*INTEGERS, *FLOATS],
    "float64": [*INTEGERS, *FLOATS, *DECIMALS],
    "decimal(7,2)": ["int8", "int16", "decimal(7,2)"],
    "decimal(18,0)": ["int8", "int32", "decimal(18,0)"],
    "decimal(19,4)": ["int8", "decimal(7,2)", "decimal(19,4)"],
    "decimal(38,10)": [*INTEGERS, *DECIMALS],
}


@st.composite
def trees(draw: st.DrawFn, kind: str, depth: int) -> Expression:
    """Draw an expression of this type: a leaf, or a call of less deep expressions."""
    if depth == 0 or draw(st.integers(0, 9)) == 0:
        if draw(st.integers(0, 4)) == 0 and kind != "binary":
            return literal(kind, draw(st.sampled_from(texts_of(kind))))
        return expression.column(0, KINDS.index(kind) + draw(st.sampled_from([0, len(KINDS)])), kind_of(kind))

    def deeper(of: str) -> Expression:
        return draw(trees(of, depth - 1))

    op = draw(st.sampled_from([*CALLS.get(kind, []), *CALLS.get(kind, []), *CHOICES]))
    checked = draw(st.booleans())
    if op in COMPARISONS:
        of = draw(st.sampled_from(KINDS))
        return call(op, kind, deeper(of), deeper(of))
    if op in STRING_TESTS:
        return call(op, kind, deeper("string"), literal("string", draw(st.sampled_from(PATTERNS))))
    if op == "is_null":
        # Columns of types without a name here can be tested for null as well.
        bare = expression.column(0, draw(st.integers(0, 2 * len(KINDS) - 1)), None)
        return call(op, kind, bare if draw(st.booleans()) else deeper(draw(st.sampled_from(KINDS))))
    if op == "in":
        of = draw(st.sampled_from([name for name in KINDS if name != "binary"]))
        return among(deeper(of), draw(st.lists(st.sampled_from(texts_of(of)), min_size=1, max_size=12)))
    if op == "substring":
        places = st.sampled_from(["0", "1", "2", "-1", "-2", "5", "-5", "2147483647", "-2147483648"])
        return call(op, kind, deeper(kind), literal("int32", draw(places)), literal("int32", draw(places)))
    if op in CASES:
        return call(op, kind, deeper(kind), literal("string", LETTERS[op]))
    if op == "is_nan":
        return call(op, kind, deeper(draw(st.sampled_from(FLOATS))))
    if op == "to_integer":
        of = draw(st.sampled_from(["bool", *INTEGERS, *FLOATS, *DECIMALS]))
        return call(op, kind, deeper(of), checked=checked and of != "bool")
    if op in ROUNDINGS:
        of = draw(st.sampled_from(rounded_from(kind)))
        places = draw(st.sampled_from(["-18", "-3", "-2", "-1", "0", "1", "5", "30"]))
        return call(op, kind, deeper(of), literal("int32", places), checked=checked)
    if op in ("floor", "ceil"):
        return call(
            op, kind, deeper(draw(st.sampled_from(DECIMALS if kind in DECIMALS else ["float64"]))), checked=checked
        )
    if op in ("remainder", "pmod") and kind in DECIMALS:
        return call(op, kind, *(deeper(draw(st.sampled_from(DECIMALS))) for _ in range(2)), checked=checked)
    if op in (*DATE_STARTS, "last_day"):
        return call(op, kind, deeper(kind), checked=checked and op == "quarter_start")
    if op == "add_months":
        return call(op, kind, deeper(kind), deeper("int32"), checked=checked)
    if op == "to_date":
        return call(op, kind, deeper(draw(st.sampled_from(TIMESTAMPS))))
    if op == "to_timestamp":
        of = draw(st.sampled_from([name for name in ("date", *TIMESTAMPS) if name != kind]))
        return call(op, kind, deeper(of), checked=checked and of == "date")
    if op == "unscaled":
        return call(op, kind, deeper(draw(st.sampled_from(["decimal(7,2)", "decimal(18,0)"]))))
    if op == "length":
        return call(op, kind, deeper("string"))
    if op in DATE_FIELDS:
        return call(op, kind, deeper("date"))
    if op == "days":
        return call("-", kind, deeper("date"), deeper("date"))
    if kind == "date" and op in ("+", "-"):
        return call(op, kind, deeper("date"), deeper("int32"))
    if kind in DECIMALS and op in ("sum", "product", *DECIMAL_ARITHMETIC, "to_decimal"):
        return draw(decimals(op, kind, deeper, checked))
    if op == "cast":
        return call(op, kind, deeper(draw(st.sampled_from(CASTS[kind]))))
    if op == "if":
        return call(op, kind, deeper("bool"), deeper(kind), deeper(kind))
    args = [deeper(kind) for _ in range(ARITY.get(op) or draw(st.integers(1, 3)))]
    return call(op, kind, *args, checked=checked and (kind in (*INTEGERS, "float64")))


def rounded_from(kind: str) -> list[str]:
    """Return the types that round to `kind`: for decimals, those with at least its scale."""
    return [name for name in DECIMALS if kind_of(name).scale >= kind_of(kind).scale] if kind in DECIMALS else [kind]


@st.composite
def decimals(draw: st.DrawFn, op: str, kind: str, deeper: Callable[[str], Expression], checked: bool) -> Expression:
    """Draw decimal arithmetic in a type that is large enough, converted to `kind`; or rounded to it directly."""
    if op == "to_decimal":
        return call(op, kind, deeper(draw(st.sampled_from([*INTEGERS, *DECIMALS]))), checked=checked)
    one, other = (deeper(draw(st.sampled_from(DECIMALS))) for _ in range(2))
    if op in DECIMAL_ARITHMETIC:
        return call(op, kind, one, other, checked=checked)
    assert one.type is not None and other.type is not None
    whole = max(one.type.precision - one.scale, other.type.precision - other.scale)
    scale = max(one.scale, other.scale)
    exact = KeyType("decimal", whole + scale + 1, scale)
    if op == "product":
        exact = KeyType("decimal", one.type.precision + other.type.precision, one.scale + other.scale)
    if exact.precision > 38:
        return call("minus", kind, one, other, checked=checked)
    op = "*" if op == "product" else draw(st.sampled_from("+-"))
    return call("to_decimal", kind, call(op, exact, one, other), checked=checked)


class Table:
    """Columns of every type, as Arrow arrays and as Python values, each twice: the second one has no nulls."""

    def __init__(self, seed: int, rows: int = ROWS) -> None:
        generator = random.Random(seed)
        self.columns: list[Column] = []
        self.told: list[list[Any]] = []
        self.length = rows
        for number, kind in enumerate([*KINDS, *KINDS]):
            sample = SAMPLES[kind]
            picks = [generator.randrange(len(sample.raw)) for _ in range(rows)]
            valid = [number >= len(KINDS) or generator.random() < 0.7 for _ in range(rows)]
            self.columns.append(Column.of(sample.array(picks, valid, before=1)))
            self.told.append(sample.keys(picks, valid))

    def rows(self) -> RowSet:
        return RowSet.of_morsel(self.columns, self.length)

    def outcome(self, node: Expression, row: int) -> Any:
        try:
            return evaluate(node, {(0, number): told[row] for number, told in enumerate(self.told)})
        except Failure:
            return Failure


def told(array: pa.Array, kind: KeyType) -> list[Any]:
    """Return an Arrow array as the oracle's values; floats as `canonical` texts."""
    assert array.type in (arrow_key_type(kind), pa.large_string(), pa.large_binary()), array.type
    array.validate(full=kind.name != "time")  # times may be any number here
    if kind.name == "decimal":
        return [None if value is None else parse_unscaled(str(value), kind.scale) for value in array.to_pylist()]
    if kind.name not in ("bool", *TEXTS, *FLOATS):
        array = array.view(pa.int32() if array.type.bit_width == 32 else f"int{array.type.bit_width}")
    return [canonical(value) for value in array.to_pylist()]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    """Silence warnings of numpy's scalars in the oracle."""
    with np.errstate(all="ignore"):
        yield


@given(data=st.data(), seed=st.integers(0, 1 << 32))
@examples(1500)
def test_any_expression(data: st.DataObject, seed: int) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    node = data.draw(trees(kind, 3))
    assert ARROW.find_uncovered(node) is None
    table = Table(seed)
    expected = [table.outcome(node, row) for row in range(ROWS)]
    rows = table.rows()
    if Failure in expected:
        with pytest.raises(ExpressionError) as caught:
            values(node, rows)
        assert caught.value.row == expected.index(Failure)
    kept = [row for row, value in enumerate(expected) if value is not Failure]
    picked = rows.picked(np.array(kept, dtype=np.intp))
    assert told(values(node, picked), kind_of(kind)) == [canonical(expected[row]) for row in kept]
    if kind == "bool":
        assert holds(node, picked).tolist() == [expected[row] is True for row in kept]


def column(kind: str, number: int) -> Expression:
    return expression.column(0, number, kind_of(kind))


def rows_of(*arrays: pa.Array) -> RowSet:
    return RowSet.of_morsel([Column.of(array) for array in arrays], len(arrays[0]))


def digits(kind: str, *values: int | None) -> pa.Array:
    scale = kind_of(kind).scale
    texts = [None if value is None else str(Decimal(value).scaleb(-scale, Context(60))) for value in values]
    return pa.array(texts, pa.string()).cast(arrow_key_type(kind_of(kind)))


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 5000])
@pytest.mark.parametrize("nulls", [0.0, 0.5, 1.0])
def test_prices_of_every_size(length: int, nulls: float) -> None:
    """TPC-H's revenue and charge, which share a subexpression."""
    generator = random.Random(f"{length} {nulls}")
    money = "decimal(15,2)"

    def some(least: int, most: int) -> list[int | None]:
        return [None if generator.random() < nulls else generator.randrange(least, most) for _ in range(length)]

    prices, discounts, taxes = some(90_104, 10_494_951), some(0, 11), some(0, 9)
    rows = rows_of(*(digits(money, *told) for told in (prices, discounts, taxes)))
    one = literal("decimal(1,0)", "1")
    revenue = call("*", "decimal(32,4)", column(money, 0), call("-", "decimal(16,2)", one, column(money, 1)))
    charge = call("times", "decimal(38,6)", revenue, call("+", "decimal(16,2)", one, column(money, 2)), checked=True)
    expected = [
        [None if None in (p, d) else p * (100 - d) for p, d in zip(prices, discounts, strict=True)],  # type: ignore[operator]
        [
            None if None in (p, d, t) else p * (100 - d) * (100 + t)  # type: ignore[operator]
            for p, d, t in zip(prices, discounts, taxes, strict=True)
        ],
    ]
    got = columns([revenue, charge, column(money, 0)], rows)
    assert got == [digits("decimal(32,4)", *expected[0]), digits("decimal(38,6)", *expected[1]), digits(money, *prices)]


def test_what_occurs_twice_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(pa.array([1, 2, 3], pa.int64()))
    twice = call("+", "int64", column("int64", 0), literal("int64", "1"))
    computed: list[str] = []
    arithmetic = vector_arithmetic.compute_arithmetic
    monkeypatch.setattr(
        vector_arithmetic, "compute_arithmetic", lambda node, *args: computed.append(node.op) or arithmetic(node, *args)
    )
    square = call("*", "int64", twice, call("+", "int64", column("int64", 0), literal("int64", "1")))
    assert [array.to_pylist() for array in columns([square, twice, twice], rows)] == [[4, 9, 16], [2, 3, 4], [2, 3, 4]]
    assert sorted(computed) == ["*", "+"]


def test_words_end_where_decimals_go_on() -> None:
    """Every operator at the limits of a machine word, one before and one after."""
    limits = [2**63 - 2, 2**63 - 1, 2**63, -(2**63) + 1, -(2**63), -(2**63) - 1, 3_037_000_499, 3_037_000_500, 0, 1]
    kind = "decimal(20,1)"
    for first in limits:
        for second in limits:
            rows = rows_of(digits(kind, first), digits(kind, second))
            row = {(0, 0): first, (0, 1): second}
            for op, result in (
                *((op, to) for op in DECIMAL_ARITHMETIC for to in ("decimal(38,2)", "decimal(38,0)", "decimal(38,30)")),
                *(("+", "decimal(21,1)"), ("-", "decimal(22,2)")),
            ):
                node = call(op, result, column(kind, 0), column(kind, 1))
                got, expected = values(node, rows), evaluate(node, row)
                assert told(got, kind_of(result)) == [expected], (op, result, first, second)
            for op in ("negate", "abs"):
                node = call(op, kind, column(kind, 0))
                assert told(values(node, rows), kind_of(kind)) == [evaluate(node, row)]


@pytest.mark.parametrize("text", ["0.01", "90071992547409.93", "-123456789012345678.9", "1" * 36 + ".5"])
def test_a_constant_decimal_becomes_a_double(text: str) -> None:
    """Above 2**53 digits, Python integers are divided: a single one is no array."""
    node = call("cast", "float64", literal("decimal(38,2)", text))
    rows = rows_of(pa.array([1, 2], pa.int64()))
    assert told(values(node, rows), kind_of("float64")) == [canonical(evaluate(node, {}))] * 2


def test_the_first_expression_that_fails_is_named() -> None:
    rows = rows_of(pa.array([1, 0, 2, 0], pa.int64()))
    rest = call("%", "int64", literal("int64", "7"), column("int64", 0), checked=True)
    with pytest.raises(ExpressionError, match="expression 1 fails on row 1") as caught:
        columns([column("int64", 0), rest, rest], rows)
    assert (caught.value.expression, caught.value.row) == (1, 1)
    zero = call("=", "bool", column("int64", 0), literal("int64", "0"))
    guarded = call("if", "int64", zero, literal("int64", None), rest)
    assert values(guarded, rows).to_pylist() == [0, None, 1, None]


def test_values_that_a_failing_expression_reads() -> None:
    big = 10**38 - 1
    rows = rows_of(
        pa.array([7, None], pa.int8()),
        pa.array([-0.0, 1.5], pa.float32()),
        pa.array(["ü}", ""]),
        digits("decimal(38,3)", -big, None),
        pa.array([True, False]),
        pa.array([[1], None], pa.list_(pa.int8())),
        pa.array([1, 2], pa.date32()),
    )
    kinds = ["int8", "float32", "string", "decimal(38,3)", "bool", None, "date"]
    read = [
        call("is_null", "bool", expression.column(0, number, None if kind is None else kind_of(kind)))
        for number, kind in enumerate(kinds)
    ]
    node = call("and", "bool", *read)
    assert read_failing_values(node, rows, 0) == {
        "0.0": 7,
        "0.1": -(2**31),
        "0.2": "ü}".encode().hex(),
        "0.3": -big,
        "0.4": 1,
        "0.5": True,
        "0.6": 1,
    }
    assert read_failing_values(node, rows, 1) == {"0.1": 0x3FC00000, "0.2": "", "0.4": 0, "0.6": 2}


def test_texts_of_either_width() -> None:
    large, small = pa.array(["a", None, "äb"], pa.large_string()), pa.array(["x", "y", None])
    rows = rows_of(large, small)
    one, other = column("string", 0), column("string", 1)
    two = literal("int32", "2")
    computed = {
        call("concat", "string", one, other): ["ax", None, None],
        call("coalesce", "string", one, other): ["a", "y", "äb"],
        call("if", "string", call("<", "bool", one, other), other, one): ["x", None, "äb"],
        call("greatest", "string", other, one): ["x", "y", "äb"],
        call("substring", "string", one, two, two): ["", None, "b"],
        one: ["a", None, "äb"],
    }
    got = columns([*computed], rows)
    assert [array.to_pylist() for array in got] == [*computed.values()]
    assert {array.type for array in got} == {pa.large_string()}
    assert columns([other], rows)[0].type == pa.string()
