"""DataFrames and Arrow tables from columns."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession


def table(**columns: Any) -> pa.Table:
    """Return a table from lists, arrays, or (type, list) pairs."""
    arrays = {
        name: pa.array(value[1], value[0]) if isinstance(value, tuple) else value for name, value in columns.items()
    }
    return pa.table(arrays)


def frame(spark: SparkSession, parts: int | None = None, **columns: Any) -> DataFrame:
    """Return a DataFrame from lists, arrays, or (type, list) pairs; in `parts` partitions if given."""
    made = created(spark, table(**columns))
    return made if parts is None else made.repartition(parts)


def created(spark: SparkSession, data: pa.Table) -> DataFrame:
    """Return `createDataFrame` of an Arrow table. Spark before 4.0 does not accept those, so a file is read instead."""
    if spark.version >= "4":
        return spark.createDataFrame(data)
    folder = tempfile.mkdtemp(prefix="sparkext-tests-")
    atexit.register(shutil.rmtree, folder)
    pq.write_table(data, f"{folder}/table.parquet", coerce_timestamps="us")
    return spark.read.option("datetimeRebaseMode", "CORRECTED").parquet(folder)
