"""Cases for a standalone cluster with two executors. `test_cluster.py` starts the cluster and runs them."""

from __future__ import annotations

import gc
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyspark
import pytest
from py4j.java_gateway import JavaObject
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.status import SparkStageInfo

import sparkext
from tests.extension.private_files import open_to_others
from tests.support.cluster import ENCRYPTED, FEW_RETRIES, QUICK_START
from tests.support.planned_joins import assert_like_spark, assert_pipelined, mode, plan_of, scans_of
from tests.support.rows import rows_of
from tests.support.sessions import configured, start_session, started_with
from tests.support.waiting import wait_until

FOLDERS = [Path(folder) for folder in os.environ["CLUSTER_FOLDERS"].split(os.pathsep)]
PARTITIONS = 4
UNFINISHED = re.compile(r"\.(part|report)$|^_temporary$")
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
    # Wait for both executors before the first task starts. Otherwise one executor might run all tasks.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.locality.wait": "0s",
    **FEW_RETRIES,
    # Spark calls a task slow by comparison with finished tasks of its stage. A quantile of 1.0 requires that all others
    # have finished; tests that need speculation set a lower one.
    "spark.speculation": "true",
    "spark.speculation.quantile": "1.0",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.multiplier": "0.1",
    "spark.speculation.efficiency.enabled": "false",
    **ENCRYPTED,
    "spark.sparkext.mode": "hint",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose tasks run on the cluster's executors, one at a time on each."""
    settings = {**SETTINGS, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    session = start_session(os.environ["CLUSTER_MASTER"], settings, sparkext.configure)
    yield session
    session.stop()


def facts(spark: SparkSession) -> DataFrame:
    """Return the probe side: one row in ten has a null key, and one key in five has no match."""
    columns = ["id", "CASE WHEN id % 10 <> 0 THEN id % 50 END AS a", "string(id % 7) AS b", "id % 3 AS c"]
    return spark.range(0, 4000, 1, PARTITIONS).selectExpr(*columns)


def dim(spark: SparkSession, key: str, rows: int, per_key: int = 1) -> DataFrame:
    """Return a build side from two tasks, whose key `d` is the expression `key` of `id`."""
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
    assert len(told) == len(FOLDERS)  # the metrics of an index include its build time, so that two indexes differ


def test_a_build_side_that_does_not_fit(spark: SparkSession) -> None:
    limited = configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes=100)
    with limited:
        out = assert_like_spark(spark, lambda: chain(spark))
    assert re.search(
        r"fell back to Spark's own joins: the build side of the join on \w = d\d does not fit", plan_of(out)
    )


def test_what_lies_on_disks_is_this_users_alone(spark: SparkSession) -> None:
    """Under umask 0, on the driver and on the executors, while a query runs: folders have mode 700, files 600."""
    out = chain(spark)
    out.collect()
    for folder in (*FOLDERS, Path(os.environ["SPARK_LOCAL_DIRS"])):
        files, wrong = open_to_others(folder)
        assert files >= 3 and not wrong, wrong


def test_indexes_go_after_their_broadcasts(spark: SparkSession) -> None:
    """Spark deletes the file of an unreferenced broadcast. The next index build deletes its index files."""
    chain(spark).collect()

    def are_dropped() -> bool:
        gc.collect()
        spark.sparkContext._jvm.System.gc()
        return all(orphans(folder) for folder in FOLDERS)

    wait_until(are_dropped, "broadcasts are dropped", seconds=30)
    dropped = [orphans(folder) for folder in FOLDERS]
    chain(spark).collect()
    for folder, paths in zip(FOLDERS, dropped, strict=True):
        assert not paths & orphans(folder)


@pytest.mark.parametrize("kind", ["inner", "full"])
def test_lost_map_output_is_computed_again(spark: SparkSession, kind: str) -> None:
    """The lost output belongs to a shuffle below the probe side. A full join has a second one within the operator."""
    one, other = facts(spark).repartition(3, "b"), dim(spark, "id", 40, per_key=2)
    out = one.join(other, one.a == other.d, kind)
    expected = rows_of(out)
    assert_pipelined(out, 1)
    assert Counter(map(repr, map(tuple, out.rdd.collect()))) == expected
    lose_map_output()
    with jobs_of(spark, f"again, {kind}") as stages:
        assert Counter(map(repr, map(tuple, out.rdd.collect()))) == expected
        assert any(stage.currentAttemptId for stage in stages()), "nothing was missed"


@pytest.mark.parametrize("harm", ["lost", "damaged"])
@pytest.mark.parametrize("kind", ["inner", "full"])
def test_a_partitioned_join(spark: SparkSession, kind: str, harm: str) -> None:
    """Each partition reads half of its rows from the other executor. Unreadable map outputs are computed again."""
    with configured(spark, spark_sparkext_partitioned="always", spark_sql_shuffle_partitions=6):
        one, other = facts(spark), dim(spark, "id", 40, per_key=2)
        out = assert_like_spark(spark, lambda: one.join(other, one.a == other.d, kind))
        assert "partitioned=32 buckets of join 1" in plan_of(out)
        expected = Counter(map(repr, map(tuple, out.rdd.collect())))
        lose_map_output() if harm == "lost" else damage_map_output()
        with jobs_of(spark, f"{harm}, {kind}") as stages:
            assert Counter(map(repr, map(tuple, out.rdd.collect()))) == expected
            assert any(stage.currentAttemptId for stage in stages()), "nothing was missed"


def deadly(column: str, at: int, mark: Path) -> Column:
    """Return the column. The first executor that reads value `at` is killed, once."""

    @F.udf("long")
    def ending(number: int) -> int:
        if number == at and not mark.exists():
            mark.touch()
            next(parent for parent in psutil.Process().parents() if "java" in parent.name()).kill()
            time.sleep(60)  # until this worker is killed, too
        return number

    return ending(column)


@pytest.mark.parametrize("checksums", [True, False] if pyspark.__version__ >= "4.1" else [False])
def test_no_row_is_lost_where_the_order_of_rows_decides(spark: SparkSession, tmp_path: Path, checksums: bool) -> None:
    """A task that runs again distributes its rows differently if their order differs: none may be lost or doubled.

    With checksums, Spark's default from 4.2 on, Spark runs the lost tasks of the join, detects that their rows are
    distributed differently, and runs all tasks again that have read them. Without checksums, Spark runs all tasks of
    both stages, because the order of rows is indeterminate.
    """
    lost, shuffled, executors = tmp_path / "lost", FOLDERS[0], len(FOLDERS)

    def turned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reverse the rows once output is lost. Spark takes the order of this function's output to be deterministic."""
        for batch in batches:
            yield batch.take(pa.array(range(batch.num_rows)[::-1])) if lost.exists() else batch

    def losing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Delete one executor's shuffle files after one task on each has read its rows, and before a third reads."""
        yield from batches
        number = TaskContext.get().partitionId()
        if number < executors and not lost.exists():
            (tmp_path / f"read by {number}").touch()
            while not all((tmp_path / f"read by {one}").exists() for one in range(executors)):
                time.sleep(0.01)
            if number == 0:
                for path in shuffled.rglob("shuffle_*"):
                    path.unlink(missing_ok=True)
                lost.touch()
            while not lost.exists():
                time.sleep(0.01)

    with mode(spark, "off"):
        expected = rows_of(chain(spark))
    unsorted = configured(
        spark,
        spark_sql_adaptive_enabled=False,
        spark_sql_execution_sortBeforeRepartition=False,
        spark_sql_shuffle_orderIndependentChecksum_enabled=checksums,
        spark_sql_shuffle_orderIndependentChecksum_enableFullRetryOnMismatch=checksums,
    )
    with unsorted, jobs_of(spark, f"dealt out, {checksums}") as stages:
        probe = facts(spark)
        joined = chain(spark, probe.mapInArrow(turned, probe.schema))
        dealt = joined.repartition(3)
        out = dealt.mapInArrow(losing, dealt.schema).repartition(2, "id")
        got = rows_of(out)
        assert got == expected, f"missing {expected - got}, surplus {got - expected}"
        assert_pipelined(out, 3)
        assert lost.exists()
        first, again = attempts(spark, stages, PARTITIONS)
        assert sorted(partitions(first)) == list(range(PARTITIONS))
        assert 0 < len(again) < PARTITIONS if checksums else sorted(partitions(again)) == list(range(PARTITIONS))
        failed, *_, whole = attempts(spark, stages, 3)
        assert "FAILED" in statuses(failed) and statuses(failed).count("SUCCESS") == 2
        assert sorted(partitions(whole)) == [0, 1, 2] and set(statuses(whole)) == {"SUCCESS"}


@pytest.mark.parametrize("probe", ["rows", "files"])
def test_a_copy_of_a_slow_task_is_done_first(spark: SparkSession, tmp_path: Path, probe: str) -> None:
    """The original and the copy run the join and write its output at the same time; the killed one leaves no files."""
    begun = tmp_path / "begun"

    @F.udf("long")
    def slow(number: int) -> int:
        if number == 3901:
            with suppress(FileExistsError), begun.open("x") as stream:
                stream.write(str(os.getpid()))
                stream.flush()
                time.sleep(120)  # until this worker is killed
        return number

    def query() -> DataFrame:
        if probe == "rows":
            return chain(spark, facts(spark).withColumn("id", slow("id")))
        one = spark.read.parquet(str(tmp_path / "facts"))
        other = spark.read.parquet(str(tmp_path / "dim")).hint("pipelined_join")
        return one.join(other, one.a == other.d).withColumn("id", slow("id"))

    facts(spark).write.parquet(str(tmp_path / "facts"))
    dim(spark, "id", 40, per_key=2).write.parquet(str(tmp_path / "dim"))
    before = [indexes(folder, "*") for folder in FOLDERS]
    a_file_a_task = configured(spark, spark_sql_files_maxPartitionBytes="64k")
    small_batches = configured(
        spark, spark_sql_execution_arrow_maxRecordsPerBatch=100, spark_sparkext_morsel_maxRows=100
    )
    hurried = started_with(spark, "spark.speculation.quantile", "0.75")
    with a_file_a_task, small_batches, hurried, jobs_of(spark, f"slow, {probe}") as stages:
        out = query()
        out.write.parquet(str(tmp_path / "out"))
        slow_task = int(begun.read_text())
        wait_until(lambda: not psutil.pid_exists(slow_task), "the slow task has ended", seconds=30)
        wait_until(
            lambda: "RUNNING" not in statuses(attempts(spark, stages, PARTITIONS)[0]),
            "the slow task is over",
            seconds=30,
        )
        (ran,) = attempts(spark, stages, PARTITIONS)
    assert scans_of(out)[0][:2] == ((0, False) if probe == "rows" else (1, True)), plan_of(out)
    assert_all_tasks_reported(out)
    (killed,) = [task for task in ran if task.status() == "KILLED"]
    (other,) = [task for task in ran if task.index() == killed.index() and task.status() == "SUCCESS"]
    assert other.speculative() != killed.speculative() and other.host() != killed.host()
    assert sorted(partitions(ran)) == sorted([*range(PARTITIONS), killed.index()])
    with mode(spark, "off"):
        expected = rows_of(query())
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == expected
    for folder, known in zip(FOLDERS, before, strict=True):
        assert len(indexes(folder, "*") - known) == (3 if probe == "rows" else 1)
    assert_nothing_unfinished(*FOLDERS, tmp_path / "out")


def test_an_executor_is_lost_while_it_probes(spark: SparkSession, tmp_path: Path) -> None:
    """Spark starts a new executor, which builds its own indexes, and runs the tasks again."""
    killed = tmp_path / "killed"
    expected = rows_of(chain(spark))
    out = chain(spark, facts(spark).withColumn("id", deadly("id", 1501, killed)))
    assert_pipelined(out, 3)
    assert rows_of(out) == expected
    assert killed.exists()


def test_an_executor_is_lost_while_partitions_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    """Its map outputs of both sides are lost as well. Spark runs these map tasks and the affected partitions again."""
    killed = tmp_path / "killed"
    last = chain(spark).agg(F.max("id")).collect()[0][0]
    with configured(spark, spark_sparkext_partitioned="always", spark_sql_shuffle_partitions=6):
        expected = rows_of(chain(spark))
        out = chain(spark).withColumn("id", deadly("id", last, killed))
        assert "partitioned=32 buckets" in plan_of(out)
        assert rows_of(out) == expected
    assert killed.exists()


def chain(spark: SparkSession, probe: DataFrame | None = None) -> DataFrame:
    """Return three joins of two join types, on keys of two types."""
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
    """Yield a function that returns the stages of the jobs that run within this context."""
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


def attempts(spark: SparkSession, stages: Callable[[], list[SparkStageInfo]], size: int) -> list[list[JavaObject]]:
    """Return the tasks of each attempt of the only stage with `size` partitions, attempt by attempt."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()

    def tasks(stage: int, run: int) -> list[JavaObject]:
        found = context.statusStore().taskList(stage, run, 100)
        return [found.apply(number) for number in range(found.size())]

    runs = [[tasks(stage.stageId, run) for run in range(stage.currentAttemptId + 1)] for stage in stages()]
    (wanted,) = [of_stage for of_stage in runs if len({task.index() for task in of_stage[0]}) == size]
    return wanted


def partitions(tasks: list[JavaObject]) -> list[int]:
    """Return the partitions that these tasks compute."""
    return [task.index() for task in tasks]


def statuses(tasks: list[JavaObject]) -> list[str]:
    """Return the status of each task as Spark reports it."""
    return [task.status() for task in tasks]


def lose_map_output(*folders: Path) -> None:
    """Delete the shuffle files of these executors, or of all executors if none is given."""
    lost = [path for folder in folders or FOLDERS for path in folder.rglob("shuffle_*") if path.is_file()]
    assert lost
    for path in lost:
        path.unlink()


def damage_map_output() -> None:
    """Overwrite the last bytes of the shuffle files of all executors."""
    shuffled = [path for folder in FOLDERS for path in folder.rglob("shuffle_*.data") if path.stat().st_size]
    assert shuffled
    for path in shuffled:
        path.write_bytes(path.read_bytes()[:-9] + b"damaged..")


def assert_all_tasks_reported(out: DataFrame) -> None:
    """Assert that the metrics of all tasks of the last run, from both executors, have reached the driver."""
    told = sparkext.report(out)
    assert [task.task.partition for task in told.tasks] == list(range(PARTITIONS))
    assert told.joins[-1].rows_out > 0


def indexes(folder: Path, made_from: str = "broadcast_*") -> set[Path]:
    """Return the index files of this package in a worker's folder whose source matches `made_from`.

    Spark has index files as well, those of its shuffles.
    """
    return {path for path in folder.rglob(f"{made_from}.index") if not path.name.startswith("shuffle_")}


def assert_nothing_unfinished(*folders: Path) -> None:
    """Assert that the temporary files of tasks disappear within 30 seconds."""

    def unfinished() -> set[Path]:
        return {path for folder in folders for path in folder.rglob("*") if UNFINISHED.search(path.name)}

    wait_until(lambda: not unfinished(), lambda: f"none of {unfinished()} is left", seconds=30)


def orphans(folder: Path) -> set[Path]:
    """Return the index files whose broadcast has been deleted."""
    return {index for index in indexes(folder) if not index.with_name(index.name.partition(".")[0]).exists()}
