"""Converts rows of Python to files and to DataFrames of Spark."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.stream_harness.columns import FOLDED_INTO_STRUCT, Column, expression, stored_name
from tests.stream_harness.sources import File, Row, Source, Stream
from tests.support.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_FIRST_SECOND = 1_700_000_000
"""The first modification time of files: Spark reads the oldest files first."""


@cache
def spark_type(sql: str) -> DataType:
    """Return the Spark type of a column."""
    from pyspark.sql.types import DataType

    return DataType.fromDDL(sql)


def arrow_type(sql: str) -> pa.DataType:
    """Return the Arrow type of a column."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(spark_type(sql), timezone="UTC")


def struct_of(columns: Sequence[Column]) -> StructType:
    """Return a schema of nullable columns."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for column in columns:
        schema = schema.add(column.name, spark_type(column.type))
    return schema


def table(spark: SparkSession, columns: Sequence[Column], rows: Sequence[Row]) -> DataFrame:
    """Return rows as a DataFrame that is not a stream."""
    arrays = [pa.array([row[place] for row in rows], arrow_type(one.type)) for place, one in enumerate(columns)]
    made = pa.Table.from_arrays(arrays, names=[column.name for column in columns])
    return spark.createDataFrame(made, struct_of(columns))


def write_batches(stream: Stream, source: Source, folder: Path, first: int, count: int) -> None:
    """Add the files of some batches to a folder: the same number for each batch, which Spark reads at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    width = files_in_batch(source)
    for number in range(first, first + count):
        batch = source.batches[number] if number < len(source.batches) else ()
        for place in range(width):
            path = folder / f"{number:03}-{place}.parquet"
            pq.write_table(_stored(stream, source, batch[place] if place < len(batch) else ()), path)
            changed = _FIRST_SECOND + number * width + place
            os.utime(path, (changed, changed))


def files_in_batch(source: Source) -> int:
    """Return the number of files that Spark reads per batch."""
    return max([1, *map(len, source.batches)])


def _stored(stream: Stream, source: Source, rows: File) -> pa.Table:
    arrays, names = [], []
    for place, (column, made) in enumerate(zip(stream.columns, source.derivations, strict=True)):
        values: list[Any] = [row[place] for row in rows]
        kind = arrow_type(column.type) if made.way != "literal" else pa.int8()
        if made.way == "literal":
            values = [0] * len(rows)
        elif made.way == FOLDED_INTO_STRUCT:
            kind, values = pa.struct([("inside", kind)]), [None if one is None else {"inside": one} for one in values]
        arrays.append(pa.array(values, kind))
        names.append(stored_name(column, made, place))
    return pa.Table.from_arrays(arrays, names=names)


def stream(spark: SparkSession, described: Stream, folders: Sequence[Path]) -> DataFrame:
    """Return a stream of the files in some folders, one folder per source."""
    from pyspark.sql.types import StructType

    frame = None
    for source, folder in zip(described.sources, folders, strict=True):
        schema, expressions = StructType(), []
        unique = stored_name(
            described.columns[described.unique], source.derivations[described.unique], described.unique
        )
        for place, (column, made) in enumerate(zip(described.columns, source.derivations, strict=True)):
            kind = spark_type("tinyint" if made.way == "literal" else column.type)
            if made.way == FOLDED_INTO_STRUCT:
                kind = StructType().add("inside", kind)
            schema = schema.add(stored_name(column, made, place), kind)
            expressions.append(expression(column, made, place, quoted(unique)))
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", files_in_batch(source))
        part = reader.parquet(str(folder)).selectExpr(*expressions)
        for column, made in zip(described.columns, source.derivations, strict=True):
            if made.way == "required":
                part = part.where(f"{quoted(column.name)} IS NOT NULL")
        frame = part if frame is None else frame.unionAll(part)
    assert frame is not None, "a stream has a source"
    if described.delay is None:
        return frame
    return frame.withWatermark(quoted(described.columns[described.time].name), f"{described.delay} seconds")
