"""Two tables in files for tests of partitioned joins: a hot key, nulls, and keys that only one side has."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession


def write_joined_tables(spark: SparkSession, folder: Path) -> None:
    """Write `l` and `r` in files of several splits, and register them as views."""
    n = 6000
    keys = [None if i % 11 == 0 else 7 if i % 5 == 0 else (i * 7919) % 900 for i in range(n)]
    left = {"k": pa.array(keys, pa.int64()), "a": list(range(n)), "x": [f"x{i % 13}" * (i % 4) for i in range(n)]}
    right = {
        "rk": pa.array([None if i % 23 == 0 else 7 if i % 40 == 0 else 100 + i for i in range(1000)], pa.int64()),
        "b": [i % 50 for i in range(1000)],
        "y": [None if i % 3 else f"y{i}" for i in range(1000)],
    }
    for name, columns, files in (("l", left, 6), ("r", right, 3)):
        table = pa.table(columns)
        (folder / name).mkdir()
        size = -(-table.num_rows // files)
        for number in range(files):
            pq.write_table(table.slice(number * size, size), folder / name / f"{number}.parquet")
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(name)
