"""The common type of two key types: Spark's coercions if they are exact, and none otherwise."""

from __future__ import annotations

import itertools

import pytest

from sparkext.plans.expressions.key_types import KEY_TYPE_NAMES, KeyType, common_key_type, parse_key_type
from sparkext.plans.pipeline.join_names import join_names, parse_join_kind


def key_type(text: str) -> KeyType:
    return parse_key_type(text)


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("int8", "int64", "int64"),
        ("int32", "int16", "int32"),
        ("float32", "float64", "float64"),
        ("int8", "float64", "float64"),
        ("int64", "float64", "float64"),
        ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
        ("decimal(10,0)", "decimal(10,5)", "decimal(15,5)"),
        ("decimal(38,0)", "decimal(38,0)", "decimal(38,0)"),
        ("decimal(5,2)", "int32", "decimal(12,2)"),
        ("decimal(5,2)", "int64", "decimal(22,2)"),
        ("decimal(38,0)", "decimal(10,1)", None),
        ("decimal(20,19)", "int64", None),
        ("int64", "float32", None),
        ("decimal(5,2)", "float64", None),
        ("string", "int64", None),
        ("string", "binary", None),
        ("date", "timestamp", None),
        ("timestamp", "timestamp_ntz", None),
        ("bool", "int8", None),
    ],
)
def test_common_type(left: str, right: str, common: str | None) -> None:
    expected = None if common is None else key_type(common)
    assert common_key_type(key_type(left), key_type(right)) == expected
    assert common_key_type(key_type(right), key_type(left)) == expected


def test_every_type_meets_itself() -> None:
    for name in KEY_TYPE_NAMES:
        one = KeyType(name, 10, 2) if name == "decimal" else KeyType(name)
        assert common_key_type(one, one) == one
        assert parse_key_type(str(one)) == one


def test_a_common_type_is_common_to_both_with_itself() -> None:
    types = [KeyType(name) for name in KEY_TYPE_NAMES if name != "decimal"] + [
        KeyType("decimal", precision, scale) for precision in (1, 18, 19, 38) for scale in (0, 1)
    ]
    for left, right in itertools.product(types, types):
        common = common_key_type(left, right)
        if common is not None:
            assert common_key_type(common, left) == common == common_key_type(common, right)


@pytest.mark.parametrize("text", ["", "varchar", "decimal", "decimal(a,b)", "int64x"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_key_type(text)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("inner", "inner"),
        ("cross", "inner"),
        ("LEFT_OUTER", "left"),
        ("leftanti", "anti"),
        ("Left_Semi", "semi"),
        ("outer", "full"),
        ("fullouter", "full"),
        ("right_outer", "right"),
        ("lefty", None),
        ("", None),
    ],
)
def test_join_kind(how: str, kind: str | None) -> None:
    assert parse_join_kind(how) == kind


def test_all_names_are_offered() -> None:
    assert all(parse_join_kind(name) for name in join_names().split(", "))
