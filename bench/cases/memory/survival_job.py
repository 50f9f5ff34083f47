"""One job of the survival suite, in its own process: a chain of three joins, the first of which explodes.

`python -m bench.cases.memory.survival_job WAY SINK FOLDER` starts Spark, joins with one of `WAYS`, and prints the
number of rows and sums as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]

PROBE_ROWS = 1_000_000
HOT_KEYS = 4
HOT_ROWS = 12
"""Adjacent probe rows with hot keys, a few with each key: a burst of matches, as in real data."""

HOT_MATCHES = 100_000
PLAIN_KEYS = 50_000
PAYLOAD_BYTES = 200
BUILD_SIDES = ("burst", "second", "third")
KEYS = (("k", "bk"), ("k2", "ck"), ("k3", "dk"))
QUERIES = 8
CONCURRENT = {"concurrent": QUERIES, "concurrent-two-slots": 2}
"""Concurrent tasks. Spark's fair scheduler gives a free slot to the pool with the fewest running tasks, and among equal
pools to the first by name. With fewer slots than queries, queries therefore run two by two."""

HEAP = "600m"
EXPECTED_ROWS = HOT_ROWS * HOT_MATCHES + (PROBE_ROWS - HOT_ROWS)
SPARKEXT = "sparkext"
SPARK = {f"Spark, {hint} hints": hint for hint in ("broadcast", "shuffle_hash", "merge")}


def write_tables(folder: Path) -> None:
    """Write the probe side, the build side that explodes, and two build sides with one match per row."""
    ids = np.arange(PROBE_ROWS, dtype=np.int64)
    keys = HOT_KEYS + ids % PLAIN_KEYS
    keys[:HOT_ROWS] = np.arange(HOT_ROWS) % HOT_KEYS
    probe = pa.table({"id": ids, "k": keys, "k2": ids % 1000, "k3": ids % 777})
    pq.write_table(probe, folder / "probe.parquet", row_group_size=50_000)
    burst = np.concatenate([np.repeat(np.arange(HOT_KEYS), HOT_MATCHES), HOT_KEYS + np.arange(PLAIN_KEYS)])
    pq.write_table(_with_text("b", burst), folder / "burst.parquet")
    pq.write_table(_with_text("c", np.arange(1000)), folder / "second.parquet")
    pq.write_table(_with_text("d", np.arange(777)), folder / "third.parquet")


def _with_text(name: str, keys: np.ndarray) -> pa.Table:
    number = pa.array(np.arange(keys.size, dtype=np.int64))
    text = pc.utf8_rpad(number.cast(pa.string()), width=PAYLOAD_BYTES, padding="x")
    return pa.table({f"{name}k": pa.array(keys.astype(np.int64)), f"{name}n": number, f"{name}t": text})


def main(way: str, sink: str, folder: Path) -> None:
    """Run the job with one of `WAYS`."""
    from bench.engines.spark_session import spark_session
    from sparkext import configure

    ours = way == SPARKEXT
    settings = {"spark.driver.memory": HEAP, "spark.sparkext.mode": "hint"}
    if sink in CONCURRENT:
        settings |= {"spark.scheduler.mode": "FAIR", "spark.sql.files.maxPartitionBytes": "512k"}
        settings["spark.sql.files.openCostInBytes"] = "0"
    with spark_session(CONCURRENT.get(sink, 2), configure if ours else None, **settings) as spark:
        probe = spark.read.parquet(str(folder / "probe.parquet"))
        if sink in CONCURRENT:
            print(json.dumps(_side_by_side(spark, lambda: _joined(probe, folder, "pipelined_join"))))
            return
        if way in ENGINES:
            out = _by_hand(probe, folder, ENGINES[way])
        else:
            out = _joined(probe, folder, SPARK.get(way, "pipelined_join"))
        print(json.dumps(_consumed(out, sink, folder)))


def _side_by_side(spark: SparkSession, query: Callable[[], DataFrame]) -> dict[str, Any]:
    """Run queries concurrently; return their common answer, and the seconds of each."""

    def one(number: int) -> tuple[dict[str, int], float]:
        # Scheduling is fair only between pools: within a pool, Spark runs jobs in their order.
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", f"query {number}")
        started = time.perf_counter()
        return _consumed(query(), "noop", Path()), time.perf_counter() - started

    with ThreadPoolExecutor(QUERIES) as pool:
        done = list(pool.map(one, range(QUERIES)))
    answers = [answer for answer, _ in done]
    if any(answer != answers[0] for answer in answers):
        raise AssertionError(f"queries side by side have different answers: {answers}")
    return {**answers[0], "seconds": [seconds for _, seconds in done]}


def _joined(probe: DataFrame, folder: Path, hint: str) -> DataFrame:
    for name, (key, build_key) in zip(BUILD_SIDES, KEYS, strict=True):
        build = probe.sparkSession.read.parquet(str(folder / f"{name}.parquet"))
        probe = probe.join(build.hint(hint), probe[key] == build[build_key])
    return probe


def _by_hand(probe: DataFrame, folder: Path, engine: Callable[..., Batches]) -> DataFrame:
    """Join as users do without this package: every worker reads the build sides and joins batch by batch."""
    from pyspark.sql.types import StructType

    fields = list(probe.schema)
    for name in BUILD_SIDES:
        fields += probe.sparkSession.read.parquet(str(folder / f"{name}.parquet")).schema
    return probe.mapInArrow(partial(engine, folder=str(folder)), StructType(fields))


def _in_mode(batches: Batches, folder: str, mode: str) -> Batches:
    """Join in this package's engine, in a delivery mode that users cannot choose."""
    from bench.data.workloads import Join, Workload
    from bench.engines import from_files
    from bench.engines.deliveries import MODES

    tables = {name: pq.read_schema(f"{folder}/{name}.parquet").empty_table() for name in ("probe", *BUILD_SIDES)}
    joins = tuple(Join(name, (keys,)) for name, keys in zip(BUILD_SIDES, KEYS, strict=True))
    return from_files.run_task(batches, Workload(tables, "probe", joins), Path(folder), MODES[mode])


def _polars(batches: Batches, folder: str) -> Batches:
    import polars

    tables = [polars.read_parquet(f"{folder}/{name}.parquet") for name in BUILD_SIDES]
    for batch in batches:
        frame = polars.from_arrow(batch)
        for table, (key, build_key) in zip(tables, KEYS, strict=True):
            frame = frame.join(table, left_on=key, right_on=build_key, coalesce=False)  # type: ignore[arg-type]
        joined = frame.to_arrow(compat_level=polars.CompatLevel.oldest())  # type: ignore[union-attr]
        plain = [field.with_type(pa.string()) if field.type == pa.large_string() else field for field in joined.schema]
        yield from joined.cast(pa.schema(plain)).to_batches()


def _acero(batches: Batches, folder: str) -> Batches:
    tables = [pq.read_table(f"{folder}/{name}.parquet") for name in BUILD_SIDES]
    for batch in batches:
        joined = pa.Table.from_batches([batch])
        for table, (key, build_key) in zip(tables, KEYS, strict=True):
            joined = joined.join(table, key, build_key, "inner", coalesce_keys=False, use_threads=False)
        yield from joined.to_batches()


def _duckdb(batches: Batches, folder: str, streamed: bool = False) -> Batches:
    """Join in DuckDB, with the whole result of a batch as a table, or `streamed`."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET preserve_insertion_order = false")
    for name in BUILD_SIDES:
        connection.execute(f"CREATE TABLE {name} AS FROM '{folder}/{name}.parquet'")
    for batch in batches:
        connection.register("probe", pa.Table.from_batches([batch]))
        query = "FROM probe JOIN burst ON k = bk JOIN second ON k2 = ck JOIN third ON k3 = dk"
        joined = connection.sql(query)
        yield from joined.to_arrow_reader(10_000) if streamed else joined.to_arrow_table().to_batches()


ENGINES: dict[str, Callable[..., Batches]] = {
    "sparkext, morsels of 200,000": partial(_in_mode, mode="morsel"),
    "sparkext, materialize": partial(_in_mode, mode="materialize"),
    "mapInArrow, Polars": _polars,
    "mapInArrow, pyarrow": _acero,
    "mapInArrow, DuckDB": _duckdb,
    "mapInArrow, DuckDB streamed": partial(_duckdb, streamed=True),
}
WAYS = (SPARKEXT, *SPARK, *ENGINES)


def _consumed(out: DataFrame, sink: str, folder: Path) -> dict[str, int]:
    """Write every row to the sink; return the number of rows and two sums."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    sums = (F.count(F.lit(1)).alias("rows"), F.sum("bn").alias("sum"), F.sum(F.length("bt")).alias("text"))
    if sink == "parquet":
        target = str(folder / f"out-{os.getpid()}")
        out.write.parquet(target)
        [row] = out.sparkSession.read.parquet(target).agg(*sums).collect()
        return dict(row.asDict())
    answer = Observation("answer")
    out.observe(answer, *sums).write.format("noop").mode("overwrite").save()
    return dict(answer.get)


def expected() -> dict[str, int]:
    """Return the answer, by arithmetic."""
    hot = sum(
        sum(range(key * HOT_MATCHES, (key + 1) * HOT_MATCHES)) for key in (row % HOT_KEYS for row in range(HOT_ROWS))
    )
    plain = HOT_KEYS * HOT_MATCHES + np.arange(HOT_ROWS, PROBE_ROWS, dtype=np.int64) % PLAIN_KEYS
    return {"rows": EXPECTED_ROWS, "sum": hot + int(plain.sum()), "text": EXPECTED_ROWS * PAYLOAD_BYTES}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
