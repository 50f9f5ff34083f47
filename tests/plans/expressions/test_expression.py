"""Expressions as data: valid ones, their JSON, and their evaluators."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from typing import Any

import pytest

from sparkext.plans.expressions.evaluators import ARROW, COMPILED, EVALUATORS
from sparkext.plans.expressions.expression import (
    CASES,
    DATE_FIELDS,
    DATE_STARTS,
    ROUNDINGS,
    TRIMS,
    Expression,
    parse_expression,
)
from sparkext.plans.expressions.key_types import KEY_TYPE_NAMES, parse_key_type
from sparkext.plans.expressions.number_types import number_type, parse_unscaled
from sparkext.plans.pipeline.spec import SPEC_VERSION, ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from sparkext.plans.pipeline.theta import NamedColumn, PythonPredicate

Data = dict[str, Any]


def column(kind: str | None, source: int = 1, number: int = 2) -> Data:
    return {"op": "column", "type": kind, "source": source, "column": number}


def literal(kind: str, text: str | None = "1") -> Data:
    return {"op": "literal", "type": kind, "text": text}


def call(op: str, kind: str, *args: Data, checked: bool = False) -> Data:
    return {"op": op, "type": kind, "args": [*args], **({"checked": True} if checked else {})}


def told(op: str, *args: Data) -> Data:
    return call(op, "bool", *args)


def among(value: Data, *texts: str | None) -> Data:
    return {**told("in", value), "list": [*texts]}


INT, LONG, REAL, TRUTH, DATE, TEXT = map(column, ("int32", "int64", "float64", "bool", "date", "string"))
PRICE, TAX = column("decimal(7,2)"), column("decimal(5,4)")
SUM = call("+", "int32", INT, literal("int32"), checked=True)
LESS = told("<", SUM, INT)
PREDICATE = PythonPredicate(
    "Z29uZQ==",
    (NamedColumn("x", 0, 3, "date"),),
    tuple(NamedColumn(name, 1, number, "int8") for number, name in enumerate("yz")),
)
EITHER: list[Data] = [
    TRUTH,
    literal("bool", "true"),
    told("<", INT, literal("int32", "7")),
    told("and", told("is_null", INT), told("not", told("or", TRUTH, told("<=>", LONG, literal("int64", None)))), TRUTH),
    told("=", PRICE, literal("decimal(7,2)", "1.50")),
    among(DATE, "1", None, "-3"),
    told("=", told("is_null", DATE), TRUTH),
    told("is_null", REAL),
    LESS,
    told("<", TRUTH, literal("bool", "true")),
    told("<", REAL, literal("float64", "NaN")),
    told("<=>", column("float32"), literal("float32", None)),
    told("=", call("negate", "int32", INT, checked=True), call("-", "int32", DATE, DATE)),
    told("=", DATE, call("-", "date", call("+", "date", DATE, INT), INT)),
    told("=", INT, call("cast", "int32", DATE)),
    told("<", call("/", "float64", call("cast", "float64", LONG), call("sqrt", "float64", REAL)), REAL),
    told("=", call("if", "int64", told("is_null", INT), call("coalesce", "int64", LONG, LONG, LONG), LONG), LONG),
    told("<", call("least", "float64", call("greatest", "float64", REAL, REAL), REAL), REAL),
    told("<", call("+", "decimal(10,4)", PRICE, TAX), call("-", "decimal(10,4)", TAX, PRICE)),
    told("=", call("*", "decimal(13,6)", PRICE, TAX), call("abs", "decimal(13,6)", column("decimal(13,6)"))),
    told("<", call("cast", "decimal(9,4)", PRICE), call("cast", "decimal(9,4)", column("int8"))),
    told("<", call("cast", "float64", PRICE), REAL),
    among(call("%", "int32", INT, literal("int32", "7")), "1"),
]
FOR_ARROW: list[Data] = [
    told("is_null", column(None)),
    told("is_null", TEXT),
    told("like", TEXT, literal("string", "a%")),
    among(TEXT, "a", "b"),
    told("<", column("time"), literal("time")),
    told(">=", column("decimal(38,10)"), literal("decimal(38,10)")),
    told("=", call("+", "decimal(20,0)", *[column("decimal(19,0)")] * 2), column("decimal(20,0)")),
    told("and", told("contains", TEXT, literal("string")), LESS),
    *(call(op, "decimal(5,1)", PRICE, TAX, checked=True) for op in ("plus", "minus", "times", "over")),
    call("to_decimal", "decimal(3,0)", PRICE),
    call("unscaled", "int64", PRICE),
    call("to_decimal", "decimal(3,1)", LONG, checked=True),
    *(call(field, "int32", DATE) for field in DATE_FIELDS),
    told("=", call("substring", "string", TEXT, literal("int32"), literal("int32", "-2")), literal("string")),
    call("length", "int32", call("concat", "string", TEXT, TEXT, TEXT)),
    *(call(op, "string", TEXT) for op in TRIMS),
    *(call(op, "string", TEXT, literal("string", "äÄ")) for op in CASES),
    call("div", "int64", LONG, LONG, checked=True),
    call("pmod", "float64", call("nan_or", "float64", REAL, REAL), REAL),
    *(call(op, "decimal(7,2)", PRICE, TAX, checked=True) for op in ("remainder", "pmod")),
    *(call(op, "decimal(6,1)", PRICE, literal("int32")) for op in ROUNDINGS),
    call("round", "int64", LONG, literal("int32", "-2"), checked=True),
    *(call(op, "int64", REAL, checked=True) for op in ("floor", "ceil", "to_integer")),
    call("floor", "decimal(6,0)", PRICE),
    call("to_integer", "int8", PRICE),
    call("to_integer", "int32", told("is_nan", REAL)),
    *(call(op, "date", DATE) for op in (*DATE_STARTS, "last_day")),
    call("add_months", "date", call("to_date", "date", column("timestamp_ntz")), INT, checked=True),
    call("to_timestamp", "timestamp", DATE, checked=True),
    call("to_timestamp", "timestamp_ntz", column("timestamp")),
]


def written(node: Expression) -> Data:
    """Return the JSON form."""
    data: Data = {"op": node.op, "type": None if node.type is None else str(node.type)}
    if node.op == "column":
        return {**data, "source": node.source, "column": node.column}
    if node.op == "literal":
        return {**data, "text": node.text}
    data["args"] = [written(argument) for argument in node.args]
    return {**data, **({"list": [*node.texts]} if node.texts else {}), **({"checked": True} if node.checked else {})}


@pytest.mark.parametrize("data", [*EITHER, *FOR_ARROW])
def test_json_and_pickles_keep_an_expression(data: Data) -> None:
    node = parse_expression(data)
    assert written(node) == data
    before = hash(node)
    sent = pickle.loads(pickle.dumps(node))
    assert "_hash" not in vars(sent), "it differs between processes"
    assert (sent, hash(sent)) == (node, before)


@pytest.mark.parametrize(
    ("data", "covered"),
    [
        *((data, EVALUATORS) for data in EITHER),
        *((data, (ARROW,)) for data in FOR_ARROW),
        (told("=", column("decimal(7,-2)"), column("decimal(7,-2)")), ()),
    ],
)
def test_evaluators_cover_what_they_run(data: Data, covered: tuple[Any, ...]) -> None:
    node = parse_expression(data)
    assert tuple(evaluator for evaluator in EVALUATORS if evaluator.find_uncovered(node) is None) == covered
    for evaluator in {*EVALUATORS} - {*covered}:
        part = evaluator.find_uncovered(node)
        assert part in node.parts()
        with pytest.raises(ValueError, match=f"not covered by {evaluator.name}"):
            evaluator.check(node)


def test_nothing_is_checked_unless_it_says_so() -> None:
    assert not parse_expression(call("abs", "int32", INT)).may_fail
    assert parse_expression(told("not", LESS)).may_fail


def test_columns_come_as_often_as_they_occur() -> None:
    parsed = parse_expression(told("or", LESS, TRUTH))
    assert [str(node.type) for node in parsed.columns()] == ["int32", "int32", "bool"]


@pytest.mark.parametrize(
    "data",
    [
        call("^", "int32", INT, INT),
        call("+", "int32", INT),
        call("+", "int32", INT, INT, INT),
        call("+", "int64", INT, LONG),
        call("+", "int64", INT, INT),
        call("+", "bool", TRUTH, TRUTH),
        call("+", "date", INT, DATE),
        call("+", "int32", DATE, DATE),
        call("-", "date", DATE, DATE),
        call("+", "string", TEXT, TEXT),
        call("+", "decimal(9,1)", PRICE, PRICE),
        call("+", "decimal(9,2)", PRICE, INT),
        call("*", "decimal(15,2)", PRICE, PRICE),
        call("%", "bool", TRUTH, TRUTH),
        call("%", "decimal(7,2)", PRICE, PRICE),
        call("/", "int32", INT, INT),
        call("/", "float32", *[column("float32")] * 2),
        call("/", "decimal(7,2)", PRICE, PRICE),
        call("plus", "decimal(7,2)", PRICE, INT),
        call("over", "int32", INT, INT),
        call("to_decimal", "decimal(7,2)", REAL),
        call("to_decimal", "int32", PRICE),
        call("unscaled", "int32", PRICE),
        call("unscaled", "int64", column("decimal(19,2)")),
        call("year", "int32", INT),
        call("month", "int64", DATE),
        call("substring", "string", TEXT, literal("int32"), INT),
        call("substring", "string", TEXT, literal("int32")),
        call("length", "int64", TEXT),
        call("concat", "string", TEXT, INT),
        call("concat", "string"),
        call("trim", "string", INT),
        call("upper", "string", TEXT),
        call("lower", "string", TEXT, TEXT),
        call("div", "float64", REAL, REAL),
        call("div", "int64", INT, INT),
        call("pmod", "decimal(7,2)", PRICE, INT),
        call("remainder", "int32", INT, INT),
        call("round", "decimal(9,3)", PRICE, literal("int32")),
        call("round", "int32", INT, INT),
        call("round", "int32", INT, literal("int32", None)),
        call("round", "int64", INT, literal("int32")),
        call("round_even", "float64", REAL, literal("int32")),
        call("floor", "float64", REAL),
        call("ceil", "decimal(7,2)", PRICE),
        call("floor", "int64", LONG),
        call("to_integer", "float64", LONG),
        call("to_integer", "int32", DATE),
        told("is_nan", INT),
        call("nan_or", "int32", INT, INT),
        call("last_day", "int32", DATE),
        call("add_months", "date", DATE, LONG),
        call("to_date", "date", DATE),
        call("to_date", "date", column("time")),
        call("to_timestamp", "timestamp", column("timestamp")),
        call("to_timestamp", "timestamp", INT),
        call("<", "int32", INT, INT),
        told("<", INT, LONG),
        told("<=>", INT, REAL),
        told("=", PRICE, TAX),
        told("=", column(None), column(None)),
        told("and"),
        told("and", INT),
        call("or", "int32", INT, INT),
        told("not", TRUTH, TRUTH),
        told("not", INT),
        call("is_null", "int8", INT),
        told("is_null", INT, INT),
        call("if", "int32", INT, INT, INT),
        call("if", "int32", TRUTH, INT),
        call("if", "int32", TRUTH, INT, LONG),
        call("if", "int64", TRUTH, INT, INT),
        call("coalesce", "int64", INT),
        call("least", "int32"),
        call("greatest", "int32", INT, LONG),
        call("negate", "bool", TRUTH),
        call("negate", "date", DATE),
        call("abs", "bool", TRUTH),
        call("abs", "int64", INT),
        call("sqrt", "float32", column("float32")),
        call("sqrt", "float64", INT),
        call("cast", "int32", REAL),
        call("cast", "int32", TRUTH),
        call("cast", "bool", INT),
        call("cast", "int64", DATE),
        call("cast", "decimal(7,1)", PRICE),
        call("cast", "decimal(7,3)", PRICE),
        call("cast", "int32", PRICE),
        call("cast", "float32", PRICE),
        call("cast", "int32", LONG, checked=True),
        call("cast", "uint8", INT),
        told("starts_with", TEXT, TEXT),
        told("starts_with", TEXT, literal("string", None)),
        told("contains", INT, literal("int32")),
        told("in", INT),
        {**told("in", INT, INT), "list": ["1"]},
        {**call("in", "int32", INT), "list": ["1"]},
        {**told("=", INT, INT), "list": ["1"]},
        {**literal("int32"), "type": None},
        literal("uint8"),
        column("uint8"),
    ],
    ids=lambda data: f"{data['op']}-{data['type']}",
)
def test_what_is_no_expression_is_refused(data: Data) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_expression(data)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        *((name, name) for name in ("bool", "int8", "int16", "int32", "int64", "float32", "float64")),
        ("date", "int32"),
        *((name, "int64") for name in ("timestamp", "timestamp_ntz", "daytime_interval", "decimal(18,3)")),
        *((name, None) for name in ("decimal(19,3)", "string", "binary", "time")),
    ],
)
def test_what_columns_become(key: str, kind: str | None) -> None:
    key_type = parse_key_type(key)
    assert number_type(key_type) == kind
    node = Expression("column", key_type)
    assert (COMPILED.find_uncovered(node) is None) == (kind is not None)
    if kind is None:
        with pytest.raises(ValueError, match="no numbers"):
            _ = node.number
    else:
        assert node.number == kind


@pytest.mark.parametrize(
    ("text", "scale", "expected"),
    [("0", 0, 0), ("-0.01", 2, -1), ("1.5", 2, 150), ("-12", 3, -12_000), ("9" * 36 + ".99", 2, int("9" * 38))],
)
def test_unscaled_digits(text: str, scale: int, expected: int) -> None:
    assert parse_unscaled(text, scale) == expected


def test_digits_that_do_not_fit_are_refused() -> None:
    with pytest.raises(AssertionError):
        parse_unscaled("0.001", 2)


def test_every_type_is_looked_at_by_someone() -> None:
    assert {name for evaluator in EVALUATORS for name in evaluator.types} == {*KEY_TYPE_NAMES}


KEY = KeyPair(ColumnRef(0, 0), 0, "int64", null_safe=False)
RANGE = RangePair(ColumnRef(0, 0), "<", 0, "int64")


@pytest.mark.parametrize("theta", [LESS, PREDICATE, None], ids=["expression", "predicate", "none"])
def test_a_spec_keeps_its_conditions(theta: Data | PythonPredicate | None) -> None:
    condition, guard = parse_expression(FOR_ARROW[3]), parse_expression(LESS)
    parsed = parse_expression(theta) if isinstance(theta, dict) else theta
    join = JoinSpec("left", (KEY,), "auto", "k", condition, theta=parsed, guard=guard)
    spec = PipelineSpec(1, (join,) * 2, (ColumnRef(0, 0),))
    before = hash(spec)
    sent = pickle.loads(pickle.dumps(spec))
    assert (sent, hash(sent)) == (spec, before)
    if not isinstance(parsed, PythonPredicate):
        told = {"condition": FOR_ARROW[3], "theta": theta, "guard": LESS}
        data = {"version": SPEC_VERSION, **asdict(spec), "joins": [{**asdict(one), **told} for one in spec.joins]}
        assert PipelineSpec.from_data(data) == spec


def test_a_spec_takes_what_its_evaluators_cover() -> None:
    text, legacy = parse_expression(FOR_ARROW[3]), parse_expression(told("=", *[column("decimal(7,-2)")] * 2))
    with pytest.raises(ValueError, match="not covered by arrow"):
        JoinSpec("left", (KEY,), "auto", "k", legacy)
    with pytest.raises(ValueError, match="not covered by compiled"):
        JoinSpec("left", (KEY,), "auto", "k", theta=text)
    with pytest.raises(ValueError, match="not covered by compiled"):
        JoinSpec("left", (KEY,), "auto", "k", guard=text)


def test_pairs_are_tried_where_nothing_else_narrows_them_down() -> None:
    theta = PythonPredicate("", (NamedColumn("x", 0, 0, "int8"),), ())
    assert JoinSpec("inner", (), "auto", "k", theta=theta).nested
    assert not JoinSpec("inner", (KEY,), "auto", "k", theta=theta).nested
    assert not JoinSpec("inner", (), "auto", "k", ranges=(RANGE,), theta=theta).nested
    assert not JoinSpec("inner", (), "auto", "k").nested
