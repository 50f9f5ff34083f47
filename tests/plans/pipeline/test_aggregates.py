"""Aggregations as plain data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation, parse_aggregation
from sparkext.plans.pipeline.spec import SPEC_VERSION, ColumnRef, PipelineSpec

INT, TEXT = parse_key_type("int64"), parse_key_type("string")
K, T = column(0, 0, INT), column(1, 2, TEXT)
AGGREGATION = Aggregation(
    (K, Expression("+", INT, (K, K), checked=True)),
    (AggregateCall("count", None), AggregateCall("sum", K, checked=True), AggregateCall("first", T, ignore_nulls=True)),
)


def test_the_json_form_is_read() -> None:
    key = {"op": "column", "type": "int64", "source": 0, "column": 0}
    text = {"op": "column", "type": "string", "source": 1, "column": 2}
    plain = {"argument": None, "checked": False, "ignore_nulls": False}
    data = {
        "keys": [key, {"op": "+", "type": "int64", "args": [key, key], "checked": True}],
        "calls": [
            {**plain, "function": "count"},
            {**plain, "function": "sum", "argument": key, "checked": True},
            {**plain, "function": "first", "argument": text, "ignore_nulls": True},
        ],
    }
    assert parse_aggregation(data) == AGGREGATION
    assert parse_aggregation({**data, "whole": True}) == replace(AGGREGATION, whole=True)
    total = Aggregation((literal(None, INT), K), AGGREGATION.calls)
    written = {**data, "keys": [{"op": "literal", "type": "int64", "text": None}, key]}
    spec = {"version": SPEC_VERSION, "probe_columns": 2, "joins": [], "outputs": [], "owner_columns": 0}
    kept = {"op": "is_null", "type": "bool", "args": [text]}
    expected = PipelineSpec(2, (), (), filter=condition("is_null", T), aggregations=(AGGREGATION, total))
    assert PipelineSpec.from_data({**spec, "filter": kept, "aggregations": [data, written]}) == expected


def test_columns_of_groups_and_filters_are_gathered() -> None:
    spec = PipelineSpec(2, (), (), filter=condition("is_null", column(2, 5, None)), aggregations=(AGGREGATION,))
    assert [spec.gathered(source) for source in range(3)] == [(0,), (2,), (5,)]


@pytest.mark.parametrize(
    ("function", "argument"),
    [("median", K), ("sum", None), ("avg", None), ("sum", T), ("bit_and", T), ("stddev_samp", K), ("", K)],
)
def test_what_no_accumulator_computes(function: str, argument: Expression | None) -> None:
    with pytest.raises(ValueError, match="not an aggregate"):
        AggregateCall(function, argument)


def test_groups_or_rows() -> None:
    with pytest.raises(ValueError, match="groups come out, or rows"):
        PipelineSpec(2, (), (ColumnRef(0, 0),), aggregations=(AGGREGATION,))


@pytest.mark.parametrize(
    "other",
    [
        Aggregation((K,), AGGREGATION.calls),
        Aggregation((K, T), AGGREGATION.calls),
        Aggregation(AGGREGATION.keys, AGGREGATION.calls[:2]),
        Aggregation(AGGREGATION.keys, (*AGGREGATION.calls[:2], AggregateCall("first", T))),
        Aggregation(AGGREGATION.keys, (*AGGREGATION.calls[:2], AggregateCall("last", T, ignore_nulls=True))),
        Aggregation(AGGREGATION.keys, (*AGGREGATION.calls[:2], AggregateCall("first", K, ignore_nulls=True))),
    ],
)
def test_all_aggregations_emit_the_same_columns(other: Aggregation) -> None:
    with pytest.raises(ValueError, match="not all aggregations emit the same columns"):
        PipelineSpec(2, (), (), aggregations=(AGGREGATION, other))
