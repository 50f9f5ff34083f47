"""What must hold on a cluster of two executors. Run by `test_cluster.py`, which starts one."""

from __future__ import annotations

import gc
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.status import SparkStageInfo

import sparkext
from tests.extension.extension_checks import (
    ENCRYPTED,
    QUICK_START,
    assert_like_spark,
    assert_pipelined,
    configured,
    open_to_others,
    plan_of,
    rows_of,
)

FOLDERS = [Path(folder) for folder in os.environ["CLUSTER_FOLDERS"].split(os.pathsep)]
PARTITIONS = 4
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    # No task starts before both executors are there, or one might run them all.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    **ENCRYPTED,
    "spark.sparkext.mode": "hint",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose tasks run on the cluster's executors, one at a time on each."""
    builder = SparkSession.builder.master(os.environ["CLUSTER_MASTER"]).appName("sparkext cluster tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    session = sparkext.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def facts(spark: SparkSession) -> DataFrame:
    """One row in ten without a key; one key in five without a match."""
    columns = ["id", "CASE WHEN id % 10 <> 0 THEN id % 50 END AS a", "string(id % 7) AS b", "id % 3 AS c"]
    return spark.range(0, 4000, 1, PARTITIONS).selectExpr(*columns)


def dim(spark: SparkSession, key: str, rows: int, per_key: int = 1) -> DataFrame:
    """A build side whose key `d` is `key` over `id`, from several tasks."""
    frame = spark.range(0, rows * per_key, 1, 2).selectExpr(f"id DIV {per_key} AS id", "id AS number")
    return frame.selectExpr(f"{key} AS d", "concat('payload ', number) AS p").hint("pipelined_join")


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
def test_one_join(spark: SparkSession, kind: str) -> None:
    one, other = facts(spark), dim(spark, "id", 40, per_key=2)
    out = assert_like_spark(spark, lambda: one.join(other, one.a == other.d, kind))
    assert_pipelined(out, 1)
    assert_all_tasks_reported(out)


def test_an_existence_join(spark: SparkSession) -> None:
    facts(spark).createOrReplaceTempView("facts")
    spark.range(40).createOrReplaceTempView("dim")
    exists = "SELECT /*+ PIPELINED_JOIN(dim) */ 1 FROM dim WHERE dim.id = facts.a"
    query = f"SELECT * FROM facts WHERE c = 0 OR EXISTS ({exists})"
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)


def test_each_executor_builds_each_index_of_a_chain_once(spark: SparkSession) -> None:
    before = [indexes(folder) for folder in FOLDERS]
    out = assert_like_spark(spark, lambda: chain(spark))
    assert_pipelined(out, 3)
    assert_all_tasks_reported(out)
    for folder, known in zip(FOLDERS, before, strict=True):
        assert len(indexes(folder) - known) == 3
    told = {repr(task.indexes) for task in sparkext.report(out).tasks}
    assert len(told) == len(FOLDERS)  # how long its building took, among other things, tells an index from others


def test_a_build_side_that_does_not_fit(spark: SparkSession) -> None:
    limited = configured(spark, **{"spark_sparkext_buildSide_maxBytes": 100})
    with limited:
        out = assert_like_spark(spark, lambda: chain(spark))
    assert re.search(
        r"fell back to Spark's own joins: the build side of the join on \w = d\d does not fit", plan_of(out)
    )


def test_what_lies_on_disks_is_this_users_alone(spark: SparkSession) -> None:
    """Whatever the umask, which is 0 here: on the driver and on the executors, while a query lives."""
    out = chain(spark)
    out.collect()
    for folder in (*FOLDERS, Path(os.environ["SPARK_LOCAL_DIRS"])):
        files, wrong = open_to_others(folder)
        assert files >= 3 and not wrong, wrong


def test_indexes_go_after_their_broadcasts(spark: SparkSession) -> None:
    """Spark deletes the file of a broadcast that nothing refers to, and the next index built what lies beside it."""
    chain(spark).collect()
    deadline = time.monotonic() + 30
    while not all(orphans(folder) for folder in FOLDERS):
        assert time.monotonic() < deadline, "no broadcast is ever dropped"
        gc.collect()
        spark.sparkContext._jvm.System.gc()
        time.sleep(0.2)
    dropped = [orphans(folder) for folder in FOLDERS]
    chain(spark).collect()
    for folder, paths in zip(FOLDERS, dropped, strict=True):
        assert not paths & orphans(folder)


@pytest.mark.parametrize("kind", ["inner", "full"])
def test_lost_map_output_is_computed_again(spark: SparkSession, kind: str) -> None:
    """That of a shuffle below the probe side; a full join has one more within the operator."""
    one, other = facts(spark).repartition(3, "b"), dim(spark, "id", 40, per_key=2)
    out = one.join(other, one.a == other.d, kind)
    expected = rows_of(out)
    assert_pipelined(out, 1)
    assert Counter(map(repr, map(tuple, out.rdd.collect()))) == expected
    lose_map_output()
    with jobs_of(spark, f"again, {kind}") as stages:
        assert Counter(map(repr, map(tuple, out.rdd.collect()))) == expected
        assert any(stage.currentAttemptId for stage in stages()), "nothing was missed"


def test_an_executor_is_lost_while_it_probes(spark: SparkSession, tmp_path: Path) -> None:
    """Spark starts another in its place, which builds its indexes anew, and runs the tasks again."""
    killed = tmp_path / "killed"

    @F.udf("long")
    def deadly(number: int) -> int:
        if number == 1501 and not killed.exists():
            killed.touch()
            executor = next(parent for parent in psutil.Process().parents() if "java" in parent.name())
            executor.kill()
            time.sleep(60)  # until this worker, too, is ended
        return number

    expected = rows_of(chain(spark))
    out = chain(spark, facts(spark).withColumn("id", deadly("id")))
    assert_pipelined(out, 3)
    assert rows_of(out) == expected
    assert killed.exists()


def chain(spark: SparkSession, probe: DataFrame | None = None) -> DataFrame:
    """Three joins of two kinds, on keys of two types."""
    first = dim(spark, "id", 40).toDF("d1", "p1")
    second = dim(spark, "string(id)", 6, per_key=3).toDF("d2", "p2")
    third = dim(spark, "id", 2).toDF("d3", "p3")
    out = (
        (facts(spark) if probe is None else probe)
        .join(first, F.col("a") == F.col("d1"))
        .join(second, F.col("b") == F.col("d2"), "left")
    )
    return out.join(third, F.col("c") == F.col("d3"))


@contextmanager
def jobs_of(spark: SparkSession, group: str) -> Iterator[Callable[[], list[SparkStageInfo]]]:
    """Give what tells of the stages of the jobs that are run meanwhile."""
    context, tracker = spark.sparkContext, spark.sparkContext.statusTracker()

    def stages() -> list[SparkStageInfo]:
        jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number))]
        numbers = {number for job in jobs for number in job.stageIds}
        return [stage for number in sorted(numbers) if (stage := tracker.getStageInfo(number))]

    context.setJobGroup(group, group)
    try:
        yield stages
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def lose_map_output(*folders: Path) -> None:
    """Delete what tasks of executors, of all if none is named, have shuffled."""
    lost = [path for folder in folders or FOLDERS for path in folder.rglob("shuffle_*") if path.is_file()]
    assert lost
    for path in lost:
        path.unlink()


def assert_all_tasks_reported(out: DataFrame) -> None:
    """Prove that what the tasks of the last run told has come to the driver from both executors."""
    told = sparkext.report(out)
    assert [task.task.partition for task in told.tasks] == list(range(PARTITIONS))
    assert told.joins[-1].rows_out > 0


def indexes(folder: Path) -> set[Path]:
    """The index files of the executors of a worker."""
    return set(folder.rglob("broadcast_*.index"))


def orphans(folder: Path) -> set[Path]:
    """The index files whose broadcast is gone."""
    return {index for index in indexes(folder) if not index.with_name(index.name.partition(".")[0]).exists()}
