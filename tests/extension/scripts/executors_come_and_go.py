"""Dynamic allocation: executors are removed with their map outputs, and new ones start when a query runs again."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.extension.cluster_cases import SETTINGS
from tests.support.planned_joins import metrics_of, plan_of

ALLOCATED = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "4s",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    # Without this timeout, executors would stay as long as a shuffle needs their files.
    "spark.dynamicAllocation.shuffleTracking.timeout": "4s",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.sparkext.partitioned": "always",
    "spark.sparkext.debug.partitions": "random",
}


def wait_until_all_have_left(spark: SparkSession) -> None:
    deadline = time.monotonic() + 60
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver counts as one
        assert time.monotonic() < deadline, "executors stay"
        time.sleep(0.2)


def main(master: str) -> None:
    builder = SparkSession.builder.master(master)
    for key, value in {**SETTINGS, **ALLOCATED}.items():
        builder = builder.config(key, value)
    spark = sparkext.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    turn = Path(mkdtemp()) / "turn"

    @F.udf("long")
    def key(value: int) -> int:
        """Return other keys in the second run, so that map tasks send rows to other buckets than planned."""
        return value % 3 + 500 * int(turn.read_text())

    build = spark.range(0, 10, 1, 3).withColumnRenamed("id", "d").hint("pipelined_join")
    out = spark.range(0, 9000, 1, 4).withColumn("k", key("id")).join(build, F.expr("k = d"), "full")
    matched = [(n, n % 3, n % 3) for n in range(9000)] + [(None, None, d) for d in range(3, 10)]
    unmatched = [(n, n % 3 + 500, None) for n in range(9000)] + [(None, None, d) for d in range(10)]
    turn.write_text("0")
    assert Counter(map(tuple, out.collect())) == Counter(matched)
    assert "partitioned=" in plan_of(out) and metrics_of(out)["partitions"] > 1, plan_of(out)
    wait_until_all_have_left(spark)
    turn.write_text("1")
    assert Counter(map(tuple, out.collect())) == Counter(unmatched)
    spark.stop()
    rmtree(turn.parent)
    print("all is well")


if __name__ == "__main__":
    main(sys.argv[1])
