"""Writes tables and creates views of them: Parquet of several writers, ORC, caches, and VALUES in the plan."""

from __future__ import annotations

import urllib.parse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.tables import Column, Table
from tests.support.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "array<int>": pa.list_(pa.int32()),
    "struct<a:int,b:string>": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "map<string,int>": pa.map_(pa.string(), pa.int32()),
}
# Spark reads these unsigned types as the keys.
_UNSIGNED = {"smallint": pa.uint8(), "int": pa.uint16(), "bigint": pa.uint32(), "decimal(20,0)": pa.uint64()}
_OWN_OPTIONS = ("unsigned", "coarse_time", "required", "without_row_groups")
_NO_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"


def values_sql(table: Table) -> str:
    """Return a query that returns the rows of a table."""
    names = [quoted(column.name) for column in table.columns]
    if not table.rows:
        nulls = (f"{column.of.of(None)} AS {name}" for column, name in zip(table.columns, names, strict=True))
        return f"SELECT {', '.join(nulls)} WHERE false"
    rows = (", ".join(c.of.of(value) for c, value in zip(table.columns, row, strict=True)) for row in table.rows)
    lines = ",\n".join(f"  ({row})" for row in rows)
    return f"SELECT * FROM VALUES\n{lines}\nAS rows({', '.join(names)})"


def store(spark: SparkSession, table: Table, folder: Path) -> None:
    """Write the files of a table, if it has any."""
    place = folder / table.name
    if table.storage.way == "pyarrow":
        _write_with_pyarrow(table, place)
    elif table.storage.way.startswith("spark "):
        _write_with_spark(spark, table, place)


def register(spark: SparkSession, table: Table, folder: Path) -> None:
    """Create the view of a table in a session."""
    way = table.storage.way
    if way in ("values", "cached"):
        frame = spark.sql(values_sql(table))
        if way == "cached":
            frame.cache()
    else:
        reader = spark.read
        if table.storage.partitions:
            reader = reader.schema(", ".join(f"{quoted(column.name)} {column.type}" for column in table.columns))
        frame = reader.format("orc" if way == "spark orc" else "parquet").load(str(folder / table.name))
    frame.createOrReplaceTempView(table.name)


def _write_with_spark(spark: SparkSession, table: Table, place: Path) -> None:
    options = dict(table.storage.options)
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", options.pop("timestamps", before))
    frame: DataFrame = spark.sql(values_sql(table)).repartition(table.storage.files)
    writer = frame.write.options(**options)
    if table.storage.partitions:
        writer = writer.partitionBy(*(column.name for column in table.columns[-table.storage.partitions :]))
    try:
        writer.format(table.storage.way.split()[1]).save(str(place))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", before)


def _write_with_pyarrow(table: Table, place: Path) -> None:
    options = dict(table.storage.options)
    own = {name: options.pop(name, None) for name in _OWN_OPTIONS}
    inside = len(table.columns) - table.storage.partitions
    schema = pa.schema([_field(table, number, own) for number in range(inside)])
    by_folder: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in table.rows:
        by_folder[_directories(table.columns[inside:], row[inside:])].append(row)
    for directory, rows in (by_folder or {"": []}).items():
        (place / directory).mkdir(parents=True, exist_ok=True)
        files = table.storage.files
        for file in range(files):
            part = rows[len(rows) * file // files : len(rows) * (file + 1) // files]
            arrays = [
                pa.array([_stored(row[number], field.type) for row in part], field.type)
                for number, field in enumerate(schema)
            ]
            written = pa.Table.from_arrays(arrays, schema=schema)
            row_group_size = options.get("row_group_size", 1000)
            rest = {name: value for name, value in options.items() if name != "row_group_size"}
            with pq.ParquetWriter(place / directory / f"part-{file}.parquet", schema, **rest) as writer:
                if part or not own["without_row_groups"]:
                    writer.write_table(written, row_group_size)


def _directories(columns: Sequence[Column], values: Sequence[Any]) -> str:
    def text(value: Any) -> str:
        if value is None or value == "":
            return _NO_DIRECTORY
        return urllib.parse.quote(str(value).lower() if isinstance(value, bool) else str(value), safe=" ")

    parts = zip(columns, values, strict=True)
    return "/".join(f"{urllib.parse.quote(column.name, safe=' ')}={text(value)}" for column, value in parts)


def _field(table: Table, number: int, own: dict[str, Any]) -> pa.Field:
    column = table.columns[number]
    values = [row[number] for row in table.rows]
    kind = _arrow_type(column, own)
    if column.name in (own["unsigned"] or ()) and column.type in _UNSIGNED:
        kind = _UNSIGNED[column.type]
    return pa.field(column.name, kind, nullable=not own["required"] or None in values or not values)


def _arrow_type(column: Column, own: dict[str, Any]) -> pa.DataType:
    if column.type.startswith("decimal"):
        precision, scale = column.type[8:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    if column.type in ("timestamp", "timestamp_ntz"):
        return pa.timestamp("ms" if own["coarse_time"] else "us", "UTC" if column.type == "timestamp" else None)
    return _ARROW[column.type]


def _stored(value: Any, kind: pa.DataType) -> Any:
    """Convert a value to one that a narrower type can store."""
    if value is None:
        return None
    if pa.types.is_unsigned_integer(kind):
        return abs(int(value)) % (1 << kind.bit_width)
    if pa.types.is_timestamp(kind) and kind.unit == "ms":
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return value
