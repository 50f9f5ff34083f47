"""Formulas as data: what is one, and what JSON keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkext.plans.formula import Formula, NamedColumn, PythonPredicate, number_type, parse_theta, render_theta
from sparkext.plans.key_types import parse_key_type
from sparkext.plans.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair


def column(key: str, source: int = 1, number: int = 2) -> dict[str, Any]:
    return {"op": "column", "source": source, "column": number, "key": key}


def literal(kind: str, text: str | None = "1") -> dict[str, Any]:
    return {"op": "literal", "text": text, "type": kind}


def call(op: str, kind: str, *args: dict[str, Any], checked: bool = False) -> dict[str, Any]:
    return {"op": op, "args": [*args], "type": kind, "checked": checked}


INT, LONG, REAL, TRUTH = column("int32"), column("int64"), column("float64"), column("bool")
SUM = call("+", "int32", INT, literal("int32"), checked=True)
LESS = call("<", "bool", SUM, INT)
PREDICATE = {
    "pickled": "Z29uZQ==",
    "left": [{"name": "x", "source": 0, "column": 3, "key": "date"}],
    "right": [{"name": name, "source": 1, "column": number, "key": "int8"} for number, name in enumerate("yz")],
}


@pytest.mark.parametrize(
    "data",
    [
        LESS,
        TRUTH,
        literal("bool", "true"),
        literal("float32", None),
        call("and", "bool", LESS, call("not", "bool", call("or", "bool", TRUTH, LESS)), TRUTH),
        call("<=>", "bool", column("decimal(18,4)"), column("timestamp")),
        call("=", "bool", column("date"), call("negate", "int32", INT, checked=True)),
        call("/", "float64", call("cast", "float64", LONG), call("sqrt", "float64", REAL)),
        call("if", "int64", call("is_null", "bool", INT), call("coalesce", "int64", LONG, LONG, LONG), LONG),
        call("least", "float32", call("greatest", "float32", *[column("float32")] * 2), call("cast", "float32", REAL)),
        {"op": "in", "args": [INT], "list": ["1", None, "-3"], "type": "bool"},
        PREDICATE,
    ],
    ids=lambda data: data.get("op", "predicate"),
)
def test_json_keeps_a_condition(data: dict[str, Any]) -> None:
    assert render_theta(parse_theta(json.loads(json.dumps(data)))) == data


def test_nothing_is_checked_unless_it_says_so() -> None:
    parsed = parse_theta({"op": "abs", "args": [INT], "type": "int32"})
    assert isinstance(parsed, Formula) and not parsed.checked


def test_columns_come_as_often_as_they_occur() -> None:
    parsed = parse_theta(call("or", "bool", LESS, TRUTH))
    assert isinstance(parsed, Formula)
    assert [(node.key, node.type) for node in parsed.columns()] == [("int32", "int32")] * 2 + [("bool", "bool")]


@pytest.mark.parametrize(
    "data",
    [
        call("^", "int32", INT, INT),
        call("+", "int32", INT),
        call("+", "int32", INT, INT, INT),
        call("+", "int64", INT, LONG),
        call("+", "int64", INT, INT),
        call("+", "bool", TRUTH, TRUTH),
        call("%", "bool", TRUTH, TRUTH),
        call("/", "int32", INT, INT),
        call("/", "float32", *[column("float32")] * 2),
        call("<", "int32", INT, INT),
        call("<", "bool", INT, LONG),
        call("<=>", "bool", INT, REAL),
        call("and", "bool"),
        call("and", "bool", INT),
        call("or", "int32", INT, INT),
        call("not", "bool", TRUTH, TRUTH),
        call("not", "bool", INT),
        call("is_null", "int8", INT),
        call("if", "int32", INT, INT, INT),
        call("if", "int32", TRUTH, INT),
        call("if", "int32", TRUTH, INT, LONG),
        call("if", "int64", TRUTH, INT, INT),
        call("coalesce", "int64", INT),
        call("least", "int32"),
        call("greatest", "int32", INT, LONG),
        call("negate", "bool", TRUTH),
        call("abs", "bool", TRUTH),
        call("abs", "int64", INT),
        call("sqrt", "float32", column("float32")),
        call("sqrt", "float64", INT),
        call("cast", "int32", REAL),
        call("cast", "int32", TRUTH),
        call("cast", "bool", INT),
        call("cast", "int32", LONG, checked=True),
        call("cast", "uint8", INT),
        call("in", "bool", INT),
        {**call("in", "bool", INT, INT), "list": ["1"]},
        {**call("in", "int32", INT), "list": ["1"]},
        {**call("=", "bool", INT, INT), "list": ["1"]},
        literal("string"),
        column("string"),
        column("time"),
        column("decimal(19,0)"),
        column("uint8"),
    ],
    ids=lambda data: f"{data['op']}-{data.get('type', data.get('key'))}",
)
def test_what_is_no_formula_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not a |holds no numbers"):
        parse_theta(data)


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
    assert number_type(parse_key_type(key)) == kind


KEY = KeyPair(ColumnRef(0, 0), 0, "int64", null_safe=False)
RANGE = RangePair(ColumnRef(0, 0), "<", 0, "int64")


@pytest.mark.parametrize("data", [LESS, PREDICATE, None], ids=["formula", "predicate", "none"])
def test_a_spec_keeps_its_conditions(data: dict[str, Any] | None) -> None:
    theta = None if data is None else parse_theta(data)
    spec = PipelineSpec(1, (JoinSpec("left", (KEY,), "auto", "k", theta=theta),) * 2, (ColumnRef(0, 0),))
    assert PipelineSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("how", ["right", "full"])
def test_joins_that_preserve_build_rows_take_no_condition(how: str) -> None:
    with pytest.raises(ValueError, match="takes no condition"):
        JoinSpec(how, (), "auto", "k", theta=parse_theta(LESS))


def test_pairs_are_tried_where_nothing_else_narrows_them_down() -> None:
    theta = PythonPredicate("", (NamedColumn("x", 0, 0, "int8"),), ())
    assert JoinSpec("inner", (), "auto", "k", theta=theta).nested
    assert not JoinSpec("inner", (KEY,), "auto", "k", theta=theta).nested
    assert not JoinSpec("inner", (), "auto", "k", ranges=(RANGE,), theta=theta).nested
    assert not JoinSpec("inner", (), "auto", "k").nested
