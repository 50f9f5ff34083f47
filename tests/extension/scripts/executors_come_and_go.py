"""Dynamic allocation: executors leave with the map outputs that they wrote, and others come when a query runs again."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.extension.cluster_cases import SETTINGS
from tests.extension.extension_checks import metrics_of, mode, plan_of, rows_of

ALLOCATED = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    # Executors would stay as long as shuffles need what they wrote.
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.sparkext.partitioned": "always",
}


def wait_until_all_have_left(spark: SparkSession) -> None:
    deadline = time.monotonic() + 60
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() > 1:  # the driver is one
        assert time.monotonic() < deadline, "executors stay"
        time.sleep(0.2)


def rows_with_other_keys(spark: SparkSession) -> None:
    """Maps that run again send rows to other lines than those that slots were planned by: none is lost."""
    turn = Path(mkdtemp()) / "turn"

    @F.udf("long")
    def key(value: int) -> int:
        return value % 3 + 100 * int(turn.read_text())

    spark.conf.set("spark.sparkext.debug.slots", "random")
    build = spark.range(0, 400, 1, 3).withColumnRenamed("id", "d").hint("pipelined_join")
    out = spark.range(0, 9000, 1, 4).withColumn("k", key("id")).join(build, F.expr("k = d"))
    for number in range(2):
        turn.write_text(str(number))
        if number:
            wait_until_all_have_left(spark)
        rows = out.collect()
        assert len(rows) == 9000 and {row.d // 100 for row in rows} == {number}, (number, len(rows))
        assert number or metrics_of(out)["slots"] > 1, plan_of(out)  # which are planned once
    rmtree(turn.parent)


def main(master: str) -> None:
    builder = SparkSession.builder.master(master)
    for key, value in {**SETTINGS, **ALLOCATED}.items():
        builder = builder.config(key, value)
    spark = sparkext.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(0, 9000, 1, 4).selectExpr("id % 700 AS k", "id AS v").createOrReplaceTempView("a")
    spark.range(0, 1400, 1, 3).selectExpr("id DIV 2 AS d", "id AS w").createOrReplaceTempView("b")
    query = "SELECT /*+ PIPELINED_JOIN(b) */ * FROM a FULL JOIN b ON k = d"
    with mode(spark, "off"):
        expected = rows_of(spark.sql(query))
    out = spark.sql(query)
    for number in range(2):
        if number:
            wait_until_all_have_left(spark)
        assert rows_of(out) == expected
        assert "partitioned=" in plan_of(out), plan_of(out)
    rows_with_other_keys(spark)
    spark.stop()
    print("all is well")


if __name__ == "__main__":
    main(sys.argv[1])
