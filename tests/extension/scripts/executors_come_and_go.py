"""Dynamic allocation: executors are removed with their map outputs, and new ones start when a query runs again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.extension.cluster_cases import SETTINGS
from tests.support.planned_joins import metrics_of, plan_of
from tests.support.sessions import start_session
from tests.support.waiting import wait_until

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
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus
    wait_until(lambda: executors().size() == 1, "only the driver is left")


def main(master: str) -> None:
    spark = start_session(master, {**SETTINGS, **ALLOCATED}, sparkext.configure)
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
