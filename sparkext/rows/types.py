"""Conversion of key types to Arrow types, of Spark types to key types, and of arrays to another representation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sparkext.jvm_constants import SPARK_TYPES
from sparkext.plans.expressions.key_types import KeyType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

_ARROW_TYPES = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time": pa.time64("ns"),
    "daytime_interval": pa.duration("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}

_CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"


def arrow_key_type(key_type: KeyType) -> pa.DataType:
    """Return the Arrow type in which keys of this type are compared."""
    if key_type.name == "decimal":
        return pa.decimal128(key_type.precision, key_type.scale)
    return _ARROW_TYPES[key_type.name]


def conform(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return `array` with type `target`, if both differ in representation only; otherwise raise, without conversion.

    Strings and lists may differ in the width of their offsets, timestamps in the name of their zone, and nested types
    in the names of list elements and in which fields they declare as not null. Values are not checked against such
    declarations: Spark declares fields of a struct as not null, yet sends nulls there if the struct itself is null.

    Raises
    ------
    pa.ArrowException
        The types differ in more than their representation.
    """
    if array.type == target:
        return array
    if _unify_spelling(array.type) != _unify_spelling(target):
        raise pa.ArrowTypeError(f"{array.type} is not {target}")
    return _change_representation(array, target)


def make_schema_nullable(schema: pa.Schema) -> pa.Schema:
    """Return the same columns, all of them nullable, nested fields included.

    Rows that Spark sends, rows read from segments and rows found by an index then have one schema, however a query
    declares its columns. Keys of maps stay not null, which Arrow requires.
    """
    return pa.schema([_make_field_nullable(field) for field in schema])


def _make_field_nullable(field: pa.Field) -> pa.Field:
    return field.with_type(_make_type_nullable(field.type)).with_nullable(True)


def _make_type_nullable(arrow_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(arrow_type):
        return pa.struct([_make_field_nullable(field) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        key = arrow_type.key_field
        return pa.map_(key.with_type(_make_type_nullable(key.type)), _make_field_nullable(arrow_type.item_field))
    if pa.types.is_list(arrow_type):
        return pa.list_(_make_field_nullable(arrow_type.value_field))
    return arrow_type


def _change_representation(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return nested arrays over the same buffers. A cast would check fields that are declared as not null."""
    if array.type == target:
        return array
    if not pa.types.is_nested(target):
        return array.cast(target)
    validity = array.is_valid().buffers()[1] if array.null_count else None
    if pa.types.is_struct(target):
        children = [_change_representation(array.field(number), field.type) for number, field in enumerate(target)]
        return pa.Array.from_buffers(target, len(array), [validity], array.null_count, children=children)
    if pa.types.is_map(target):
        fields = [target.key_field, target.item_field]
        parts = [
            _change_representation(part, field.type)
            for part, field in zip((array.keys, array.items), fields, strict=True)
        ]
        values = pa.Array.from_buffers(pa.struct(fields), len(parts[0]), [None], 0, children=parts)
    else:
        values = _change_representation(array.values, target.value_type)
    width = pa.int64() if pa.types.is_large_list(target) else pa.int32()
    offsets = pa.py_buffer(np.ascontiguousarray(array.offsets.cast(width)))
    return pa.Array.from_buffers(target, len(array), [validity, offsets], array.null_count, children=[values])


def conform_columns(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of these columns with the types of a schema, see `conform`."""
    arrays = [conform(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _unify_spelling(arrow_type: pa.DataType) -> pa.DataType:
    """Map all types that differ in representation only to one of them."""
    if pa.types.is_struct(arrow_type):
        return pa.struct([(field.name, _unify_spelling(field.type)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(_unify_spelling(arrow_type.key_type), _unify_spelling(arrow_type.item_type))
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return pa.list_(pa.field("element", _unify_spelling(arrow_type.value_type)))
    if pa.types.is_large_string(arrow_type):
        return pa.string()
    if pa.types.is_large_binary(arrow_type):
        return pa.binary()
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return pa.timestamp(arrow_type.unit, "UTC")
    return arrow_type


def spark_key_type(field: StructField) -> KeyType | None:
    """Return the key type of a Spark column, or None if such a column cannot be a key here.

    Not supported: nested types, intervals of months, variants; strings with a collation, and CHAR columns, because
    Spark does not compare them by their bytes.
    """
    from pyspark.sql.types import DecimalType, StringType

    data_type: DataType = field.dataType
    if isinstance(data_type, DecimalType):
        return KeyType("decimal", data_type.precision, data_type.scale)
    if isinstance(data_type, StringType) and not _is_binary_string(field):
        return None
    name = SPARK_TYPES.get(type(data_type).__name__)
    return None if name is None else KeyType(name)


def _is_binary_string(field: StructField) -> bool:
    collation = getattr(field.dataType, "collation", "UTF8_BINARY")
    declared = str((field.metadata or {}).get(_CHAR_METADATA, "")).lower()
    return collation == "UTF8_BINARY" and not declared.startswith("char")
