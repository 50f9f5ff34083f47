"""Type names of the plans as Arrow types, and Spark types as both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkext.plans.key_types import KeyType
from sparkext.shared import SPARK_TYPES

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
    """Return `array` as `target`, of which it is another spelling: anything else is an error, not a conversion.

    Strings may differ in the width of their offsets, timestamps in the name of their zone. Nested arrays stay as they
    are, whatever the spelling of their fields: Spark reads either, and declares fields of a struct as not null, yet
    sends nulls there where the struct itself is null, which Arrow refuses to cast.

    Raises
    ------
    pa.ArrowException
        It is no other spelling.
    """
    if array.type == target:
        return array
    if _spelled_alike(array.type) != _spelled_alike(target):
        raise pa.ArrowTypeError(f"{array.type} is not {target}")
    return array if pa.types.is_nested(target) else array.cast(target)


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows whose columns are spelled as in a schema, see `conform`."""
    arrays = [conform(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _spelled_alike(arrow_type: pa.DataType) -> pa.DataType:
    """Map all types that differ in spelling only to one of them."""
    if pa.types.is_struct(arrow_type):
        return pa.struct([(field.name, _spelled_alike(field.type)) for field in arrow_type])
    if pa.types.is_map(arrow_type):
        return pa.map_(_spelled_alike(arrow_type.key_type), _spelled_alike(arrow_type.item_type))
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return pa.list_(pa.field("element", _spelled_alike(arrow_type.value_type)))
    if pa.types.is_large_string(arrow_type):
        return pa.string()
    if pa.types.is_large_binary(arrow_type):
        return pa.binary()
    if pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None:
        return pa.timestamp(arrow_type.unit, "UTC")
    return arrow_type


def spark_key_type(field: StructField) -> KeyType | None:
    """Return the key type of a Spark column, or None if such a column cannot be a key here.

    Not covered: nested types, intervals of months, variants; strings with a collation, and CHAR columns, which Spark
    compares by other rules than their bytes.
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
