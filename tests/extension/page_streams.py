"""Small streams with the names and columns of the documentation pages, and a runner for the queries of an example."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_COLUMNS = {
    "orders": "concat('s', id % 2) AS symbol; 10.0D * id AS price; at AS ordered",
    "quotes": "concat('s', id % 2) AS symbol_of; 10.0D * id - 1 AS low; 10.0D * id + 4 AS high; at AS quoted",
    "trades": "concat('s', id % 2) AS symbol; id AS amount; at AS traded",
    "readings": "concat('d', id % 2) AS device; cast(id % 4 AS int) AS sensor; 1.5D * id AS level;"
    " if(id = 29, timestamp'2025-12-31', at) AS ts",
    "prices": "concat('stock ', id) AS id; 400.0D + id AS price; at AS ts",
    "funds": "3e6D AS val; early AS ts",
    "holdings": "concat('stock ', id) AS id; 0 AS num; early AS ts",
}
"""The columns of each stream, as SQL.

There are ten rows per batch, one hour apart. `at` is the time of a row; `early` is earlier than all other rows of its
batch. The last row of `readings` is late with respect to the watermark of the first batch, which applies from the third
batch on.
"""
_BATCHES, _ROWS = 3, 10
_USE = re.compile(r"\b(stream_join|stream_asof_join|ordered|output)\(|\bwriteStream\b")
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.pollingDelay": "5ms"}


def is_of_streams(code: str) -> bool:
    """Return whether an example uses streams."""
    return _USE.search(code) is not None


def page_streams(spark: SparkSession, code: str, folder: Path) -> dict[str, DataFrame]:
    """Return the streams that an example's code names, each with three batches."""
    found = {}
    for name, columns in _COLUMNS.items():
        if re.search(rf"\b{name}\b", code):
            path = str(folder / f"stream of {name}")
            for batch in range(_BATCHES):
                ids = spark.range(batch * _ROWS, (batch + 1) * _ROWS, 1, 1)
                begin = f"timestamp'2026-01-01 0{batch}:00:00'"
                times = f"{begin} AS early", f"{begin} + make_interval(0, 0, 0, 0, 0, 0, id + 1) AS at"
                ids.selectExpr("id", *times).selectExpr(*columns.split("; ")).write.mode("append").parquet(path)
            schema = spark.read.parquet(path).schema
            found[name] = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
    return found


def run_queries(spark: SparkSession, new: Mapping[str, Any], folder: Path) -> dict[str, int]:
    """Run the queries that an example has started, or, if there are none, all streaming DataFrames that it has named.

    Return the number of rows that each query has written after all batches, by the name of its table or DataFrame.
    """
    rows: dict[str, int] = {}

    def emitted(name: str) -> Any:
        def count(batch: DataFrame, number: int) -> None:
            rows[name] += len(batch.collect())

        return count

    own = spark.streams.active
    frames = {name: value for name, value in new.items() if isinstance(value, DataFrame) and value.isStreaming}
    for name, frame in () if own else frames.items():
        rows[name] = 0
        writer = frame.writeStream.option("checkpointLocation", str(folder / f"checkpoint of {name}"))
        writer.foreachBatch(emitted(name)).start()
    for query in spark.streams.active:
        query.processAllAvailable()
        assert query.lastProgress is not None and query.lastProgress["batchId"] >= _BATCHES - 1
        query.stop()
    if own:
        for table in spark.catalog.listTables():
            if not table.isTemporary:
                rows[table.name] = spark.table(table.name).count()
                spark.sql(f"DROP TABLE {table.name}")
    return rows
