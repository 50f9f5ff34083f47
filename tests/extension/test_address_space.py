"""`spark.executor.pyspark.memory` limits the address space of workers: joins either work within it or are declined."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join
from sparkext.errors import EnvironmentProblemError
from sparkext.memory.address_space import LEAST_BYTES
from tests.support.planned_joins import assert_declined, assert_like_spark, assert_pipelined, plan_of
from tests.support.sessions import configured, started_with

LEAST = LEAST_BYTES >> 20
SETTING = "spark.executor.pyspark.memory"


@contextmanager
def limited(spark: SparkSession, mebibytes: int) -> Iterator[None]:
    """Have Spark limit the workers of this thread's jobs, as it does if the setting is present at the start."""
    spark.sparkContext.setLocalProperty("resource.pyspark.memory", str(mebibytes))
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty("resource.pyspark.memory", None)


def limit_of_workers(spark: SparkSession) -> int:
    def limit(_: object) -> int:
        import resource

        return resource.getrlimit(resource.RLIMIT_AS)[0] >> 20

    return spark.sparkContext.parallelize([0], 1).map(limit).first()


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a probe side, and a build side of several files, which workers would read with several threads."""
    folder = tmp_path_factory.mktemp("tables")
    spark.range(0, 200_000, 1, 4).selectExpr("id", "id * 7919 % 100000 AS k").write.parquet(str(folder / "facts"))
    spark.range(0, 100_000, 1, 4).selectExpr("id AS dk", "concat('d', id) AS name").write.parquet(str(folder / "dims"))
    return folder


def joined(spark: SparkSession, tables: Path, how: str = "inner") -> DataFrame:
    facts, dims = (spark.read.parquet(str(tables / name)) for name in ("facts", "dims"))
    out = facts.join(dims.hint("pipelined_join"), F.col("k") == F.col("dk"), how)
    return out.agg(F.count("*"), F.sum(F.length("name")), F.sum("id"))


@pytest.mark.parametrize("fused", ["true", "false"], ids=["files", "rows"])
def test_the_least_is_enough(spark: SparkSession, tables: Path, fused: str) -> None:
    with (
        limited(spark, LEAST),
        started_with(spark, SETTING, f"{LEAST}m"),
        configured(spark, spark_sparkext_scan_fused=fused, spark_sparkext_indexCache_maxBytes=0),
    ):
        assert limit_of_workers(spark) == LEAST
        df = assert_like_spark(spark, lambda: joined(spark, tables))
        assert_pipelined(df, 1)
        assert ("scan=fused" in plan_of(df)) == (fused == "true")


def test_less_is_declined(spark: SparkSession, tables: Path) -> None:
    reason = f"spark.executor.pyspark.memory leaves a worker {LEAST - 1} MiB of address space; a pipeline"
    with started_with(spark, SETTING, f"{LEAST - 1}m"):
        assert_declined(assert_like_spark(spark, lambda: joined(spark, tables)), f"{reason} needs at least {LEAST} MiB")
    with started_with(spark, SETTING, f"{2 * LEAST - 2}m"), started_with(spark, "spark.executor.cores", "2"):
        assert_declined(joined(spark, tables), reason)
    assert_pipelined(joined(spark, tables), 1)


def test_a_large_build_side_is_left_to_spark(spark: SparkSession) -> None:
    """Auto mode declines a build side that needs more address space than the limit leaves."""
    facts = spark.range(30_000_000).selectExpr("id AS k")
    build = spark.range(4_000_000).selectExpr("id AS dk", "id AS v")
    with (
        configured(spark, spark_sparkext_mode="auto", spark_sql_autoBroadcastJoinThreshold=-1),
        started_with(spark, SETTING, f"{LEAST + 10}m"),
    ):
        df = facts.join(build, F.col("k") == F.col("dk"), "left")
        assert_declined(df, "workers would map a build side of 96000000 bytes (Spark's estimate), but spark.exec")


def test_a_transform_says_so(spark: SparkSession) -> None:
    """The transform runs through `mapInArrow`. Its worker checks the limit, too: a resource profile may have set it."""
    probe, build = spark.range(9).withColumnRenamed("id", "k"), spark.range(4).withColumnRenamed("id", "k")
    join = pipelined_join(build, on="k", how="full")
    raising = build.withColumn("v", F.expr("raise_error('collected')"))
    conf = spark._jsparkSession.sessionState().conf()
    conf.setConfString(SETTING, str(2 * LEAST - 1))
    conf.setConfString("spark.executor.cores", "2")
    try:
        for refused in (join, pipelined_join(raising, on="k", how="full")):  # before anything is collected
            with pytest.raises(EnvironmentProblemError, match=r"leaves a worker .* of address space.*at least .* MiB"):
                probe.transform(refused)
        conf.setConfString(SETTING, f"{2 * LEAST}m")
        out = probe.transform(join)
    finally:
        conf.unsetConf(SETTING)
        conf.unsetConf("spark.executor.cores")
    with limited(spark, LEAST - 1), pytest.raises(PythonException, match=r"this worker may use .* of address space"):
        out.collect()
    with limited(spark, LEAST):
        assert out.count() == 9


def test_what_cannot_be_mapped_says_so(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate(1 << 30)
    code = f"""
import resource
from pathlib import Path
from sparkext.storage.container import map_file
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
map_file(Path({str(file)!r}))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    expected = f"BuildSideTooLargeError: {file} does not fit in the worker's address space of 1.0 GiB (spark.executor.p"
    assert expected in ran.stderr, ran.stderr
