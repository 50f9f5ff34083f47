"""Conversion of Spark's types and rows to Arrow, as PySpark exchanges them."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges rows of `schema` with Python.

    Raises PySpark's error for a type that Spark does not exchange as Arrow.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before 4.2 the time zone is always UTC. In 3.5 the function takes only the schema.
    options: dict[str, Any] = {"error_on_duplicated_field_names_in_struct": True, "timezone": "UTC"}
    parameters = signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, **{name: value for name, value in options.items() if name in parameters})


def find_non_arrow_columns(schema: StructType) -> list[tuple[str, str]]:
    """Return (column, type) of every column of `schema` that Spark cannot exchange with Python as Arrow."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    problems = []
    for field in schema.fields:
        try:
            arrow_schema(StructType([field]))
        except (PySparkException, NotImplementedError, ValueError):
            problems.append((field.name, field.dataType.simpleString()))
    return problems


def takes_tables() -> bool:
    """Return whether PySpark creates DataFrames from pyarrow Tables: from 4.0 on."""
    from pyspark.sql.pandas import types

    return hasattr(types, "_check_arrow_table_timestamps_localize")


def convert_local_data(session: SparkSession, data: Any) -> tuple[StructType, pa.Table]:
    """Return the Spark schema of `session.createDataFrame(data)`, and the rows in Spark's Arrow types.

    `data` is a pandas DataFrame or a pyarrow Table. The rows do not pass through the JVM.
    """
    from pyspark.sql.pandas.types import _check_arrow_table_timestamps_localize, from_arrow_schema

    table = data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    table = table.cast(pa.schema([_simplify_field(field) for field in table.schema])).replace_schema_metadata(None)
    prefer_ntz = session.conf.get("spark.sql.timestampType", "TIMESTAMP_LTZ") == "TIMESTAMP_NTZ"
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=prefer_ntz)
    zone = str(session.conf.get("spark.sql.session.timeZone"))
    localized = _check_arrow_table_timestamps_localize(table, schema, True, zone)
    return schema, localized.cast(arrow_schema(schema))


def find_unconvertible_columns(session: SparkSession, data: Any) -> list[str]:
    """Return the names of the columns that `convert_local_data` cannot convert even on their own."""
    names = data.column_names if isinstance(data, pa.Table) else [str(name) for name in data.columns]
    broken = []
    for position, name in enumerate(names):
        try:
            convert_local_data(
                session, data.select([position]) if isinstance(data, pa.Table) else data.iloc[:, [position]]
            )
        except Exception:  # the caller reports the error
            broken.append(name)
    return broken


def _simplify_field(field: pa.Field) -> pa.Field:
    """Replace Arrow types without a Spark equivalent (dictionaries, views, date64) by an equivalent type."""
    arrow_type = field.type
    if pa.types.is_decimal(arrow_type) and arrow_type.scale < 0:
        raise pa.ArrowTypeError(f"{arrow_type}: Spark has no decimals of negative scale")
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    if pa.types.is_string_view(arrow_type):
        arrow_type = pa.string()
    elif pa.types.is_binary_view(arrow_type):
        arrow_type = pa.binary()
    elif pa.types.is_date64(arrow_type):
        arrow_type = pa.date32()
    return pa.field(field.name, arrow_type, field.nullable)
