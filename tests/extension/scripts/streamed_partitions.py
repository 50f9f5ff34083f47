"""Joins whose partitions run while the probe side is streamed to them, on random tables. `master` is the argument."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.extension.cluster_cases import SETTINGS
from tests.support.planned_joins import plan_of
from tests.support.sessions import start_session

STREAMED = {
    "spark.speculation": "false",
    "spark.authenticate": "false",
    "spark.network.crypto.enabled": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.sparkext.partitioned": "always",
    "spark.sparkext.partitioned.stages": "pipelined",
    "spark.sparkext.debug.partitions": "random",
    "spark.sql.files.maxPartitionBytes": "2m",
}
ROWS, KEYS = 600_000, 5_000


def joined(spark: SparkSession, how: str) -> DataFrame:
    build = spark.table("r").hint("pipelined_join")
    return spark.table("l").join(build, F.expr("k = rk"), how)


def sums(rows: DataFrame) -> object:
    """Return checksums that differ if a row is lost, doubled or changed. They need no shuffle."""

    def take(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns = [np.asarray(column.fill_null(-1)).astype(np.int64) for column in batch.columns]
            mixed = sum(column * (2 * place + 3) for place, column in enumerate(columns)) + 7
            told = [batch.num_rows, int((mixed * mixed).sum() % (1 << 31))]
            yield pa.record_batch([pa.array([number]) for number in told], names=["rows", "mixed"])

    found = rows.mapInArrow(take, "rows long, mixed long").collect()
    return sum(row.rows for row in found), sum(row.mixed for row in found) % (1 << 31)


def check(spark: SparkSession, *kinds: str) -> None:
    for how in kinds:
        out = joined(spark, how)
        got = sums(out)
        assert "streamed by 2 tasks to 2 partitions" in plan_of(out), plan_of(out)  # four cores
        partitions = sparkext.report(out).partitions
        assert partitions is not None and partitions.moved + partitions.split > 0, str(partitions)
        spark.conf.set("spark.sparkext.mode", "off")
        assert got == sums(joined(spark, how)), how
        spark.conf.set("spark.sparkext.mode", "hint")


def executors() -> list[int]:
    """Return the process ids of executors."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"CoarseGrainedExecutorBackend" in status.read_bytes():
                found.append(int(status.parent.name))
        except OSError:
            continue
    return found


def check_a_killed_executor(spark: SparkSession) -> None:
    """Its build rows are lost: the query fails with a clear error, or has run again. It never hangs."""
    ours = {*executors()} - BEFORE
    out = joined(spark, "inner")
    failures: list[BaseException] = []
    found: list[object] = []

    def run() -> None:
        try:
            found.append(sums(out))
        except Exception as failure:
            failures.append(failure)

    running = Thread(target=run)
    running.start()
    time.sleep(4)
    os.kill(min(ours), signal.SIGKILL)
    running.join(180)
    assert not running.is_alive(), "it hangs"
    if failures:
        assert "build rows are lost" in str(failures[0]) or "aborted" in str(failures[0]), failures[0]
    else:
        spark.conf.set("spark.sparkext.mode", "off")
        assert found == [sums(joined(spark, "inner"))]


def check_one_partition_at_a_time(spark: SparkSession) -> None:
    """Spark would never start the second partition, which the first one would wait for."""
    try:
        next(joined(spark, "inner").toLocalIterator())
    except Exception as failure:
        assert "only 1 of 2 partitions of a join have started" in str(failure), failure
    else:
        raise AssertionError("it has one partition's rows of two")


def main(master: str) -> None:
    spark = start_session(master, {**SETTINGS, **STREAMED}, sparkext.configure)
    spark.sparkContext.setLogLevel("OFF")
    with TemporaryDirectory() as folder:
        probe = spark.range(0, ROWS, 1, 6).selectExpr(f"nullif(id * 7919 % {KEYS}, 5) AS k", "id AS a", "id % 97 AS b")
        probe.write.parquet(f"{folder}/l")
        spark.range(0, 2 * KEYS, 3, 2).selectExpr("id AS rk", "id * 2 AS c").write.parquet(f"{folder}/r")
        for name in ("l", "r"):
            spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
        check(spark, "left", "left_anti", "inner")
        check_one_partition_at_a_time(spark)
        check_a_killed_executor(spark)
    spark.stop()
    print("all is well")


if __name__ == "__main__":
    BEFORE = {*executors()}
    main(sys.argv[1])
