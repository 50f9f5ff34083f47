"""Arrays in another representation of their type, and schemas without NOT NULL."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparkext.rows.types import conform, make_schema_nullable


def not_null(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


UTC, ZONE = pa.timestamp("us", "UTC"), pa.timestamp("us", "America/New_York")
SPELLINGS: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.large_string(), pa.string(), ["a", None, "bcd"]),
    (ZONE, UTC, [0, None, 7]),
    (pa.struct([("a", pa.int32())]), pa.struct([not_null("a", pa.int32())]), [{"a": 1}, None, {"a": 3}]),
    (
        pa.struct([("a", pa.large_string()), ("b", ZONE)]),
        pa.struct([not_null("a", pa.string()), not_null("b", UTC)]),
        [{"a": "x", "b": 1}, None, {"a": "yz", "b": None}],
    ),
    (pa.list_(pa.int32()), pa.list_(not_null("element", pa.int32())), [[1, 2], None, [], [3]]),
    (pa.large_list(pa.large_string()), pa.list_(not_null("element", pa.string())), [["x", "y"], None, [], ["z"]]),
    (
        pa.map_(pa.large_string(), pa.struct([("a", pa.list_(pa.int64()))])),
        pa.map_(pa.string(), not_null("value", pa.struct([not_null("a", pa.list_(not_null("e", pa.int64())))]))),
        [[("k", {"a": [1]}), ("l", {"a": []})], None, [], [("m", {"a": [2, 3]})]],
    ),
]


@pytest.mark.parametrize(("given", "target", "values"), SPELLINGS)
def test_another_spelling_holds_the_same(given: pa.DataType, target: pa.DataType, values: list[Any]) -> None:
    for kind, other in ((given, target), (target, given)):
        array = pa.array(values * 3, kind)
        for piece in (array, array.slice(3, 5), array.slice(2, 0), array.slice(len(values))):
            found = conform(piece, other)
            found.validate(full=True)
            assert found.type == other and found.to_pylist() == piece.to_pylist()


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (pa.int32(), pa.int64()),
        (pa.timestamp("us"), UTC),
        (pa.struct([("a", pa.int32())]), pa.struct([("b", pa.int32())])),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])),
        (pa.list_(pa.int32()), pa.map_(pa.int32(), pa.int32())),
    ],
)
def test_another_type_is_refused(given: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(pa.ArrowException, match="is not"):
        conform(pa.nulls(2, given), target)


def test_a_schema_without_declarations() -> None:
    marked = not_null("metadata", pa.binary()).with_metadata({"variant": "true"})
    inner = pa.struct([not_null("value", pa.list_(not_null("element", pa.int8()))), marked])
    found = make_schema_nullable(pa.schema([not_null("a", pa.map_(pa.string(), not_null("value", inner)))]))
    [field] = found
    assert field.nullable and not field.type.key_field.nullable and field.type.item_field.nullable
    value, metadata = field.type.item_type
    assert value.nullable and value.type.value_field.nullable
    assert metadata.nullable and metadata.metadata == {b"variant": b"true"}, "Spark knows variants by it"
    assert make_schema_nullable(found) == found
