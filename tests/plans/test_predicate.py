"""Predicates as data: what is one, and what JSON keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkext.plans.predicate import parse_predicate, render_predicate
from sparkext.plans.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec

COLUMN = {"source": 1, "column": 2}
LESS = {"op": "<", "args": [COLUMN, {"literal": "7"}], "type": "int32"}
NULL = {"op": "is_null", "args": [COLUMN], "type": None}


@pytest.mark.parametrize(
    "data",
    [
        LESS,
        NULL,
        {"op": "<=>", "args": [COLUMN, {"literal": None}], "type": "bool"},
        {"op": "and", "args": [LESS, {"op": "not", "args": [{"op": "or", "args": [NULL, LESS]}]}]},
    ],
)
def test_json_keeps_a_predicate(data: dict[str, Any]) -> None:
    assert render_predicate(parse_predicate(json.loads(json.dumps(data)))) == data


@pytest.mark.parametrize(
    "data",
    [
        {"op": "xor", "args": [LESS]},
        {"op": "and", "args": []},
        {"op": "not", "args": [LESS, LESS]},
        {"op": "=", "args": [COLUMN], "type": "int32"},
        {"op": "=", "args": [COLUMN, COLUMN]},
        {"op": "<", "args": [COLUMN, COLUMN], "type": "bool"},
        {"op": "=", "args": [COLUMN, COLUMN], "type": "float64"},
    ],
)
def test_what_is_no_predicate_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not a |not covered"):
        parse_predicate(data)


def test_a_spec_keeps_its_conditions() -> None:
    key = KeyPair(ColumnRef(0, 0), 0, "int64", null_safe=False)
    spec = PipelineSpec(1, (JoinSpec("left", (key,), "auto", "k", parse_predicate(LESS)),), (ColumnRef(0, 0),))
    assert PipelineSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("how", ["right", "full"])
def test_joins_that_preserve_build_rows_take_no_condition(how: str) -> None:
    with pytest.raises(ValueError, match="takes no condition"):
        JoinSpec(how, (), "auto", "k", parse_predicate(LESS))
