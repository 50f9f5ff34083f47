"""What must hold on a cluster of two executors. Run by `test_cluster.py`, which starts one."""

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
from tests.extension.extension_checks import (
    ENCRYPTED,
    QUICK_START,
    assert_like_spark,
    assert_pipelined,
    configured,
    mode,
    open_to_others,
    plan_of,
    rows_of,
    scans_of,
    started_with,
)

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
    # No task starts before both executors are there, or one might run them all.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.locality.wait": "0s",
    # Spark looks for tasks that are slow next to others that are done: all of them, unless a test says otherwise.
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
    limited = configured(spark, spark_sparkext_partitioned="never", spark_sparkext_buildSide_maxBytes=100)
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


@pytest.mark.parametrize("harm", ["lost", "damaged"])
@pytest.mark.parametrize("kind", ["inner", "full"])
def test_a_partitioned_join(spark: SparkSession, kind: str, harm: str) -> None:
    """Half of what a slot needs is on the other executor. Map outputs that cannot be read are written again."""
    with configured(spark, spark_sparkext_partitioned="always", spark_sql_shuffle_partitions=6):
        one, other = facts(spark), dim(spark, "id", 40, per_key=2)
        out = assert_like_spark(spark, lambda: one.join(other, one.a == other.d, kind))
        assert "partitioned=32 lines of join 1" in plan_of(out)
        expected = Counter(map(repr, map(tuple, out.rdd.collect())))
        lose_map_output() if harm == "lost" else damage_map_output()
        with jobs_of(spark, f"{harm}, {kind}") as stages:
            assert Counter(map(repr, map(tuple, out.rdd.collect()))) == expected
            assert any(stage.currentAttemptId for stage in stages()), "nothing was missed"


def deadly(column: str, at: int, mark: Path) -> Column:
    """The column; the executor that comes to value `at` first is ended there, once."""

    @F.udf("long")
    def ending(number: int) -> int:
        if number == at and not mark.exists():
            mark.touch()
            next(parent for parent in psutil.Process().parents() if "java" in parent.name()).kill()
            time.sleep(60)  # until this worker, too, is ended
        return number

    return ending(column)


@pytest.mark.parametrize("checksums", [True, False] if pyspark.__version__ >= "4.1" else [False])
def test_no_row_is_lost_where_the_order_of_rows_decides(spark: SparkSession, tmp_path: Path, checksums: bool) -> None:
    """A task that runs again deals its rows out otherwise, as their order is another: none may come twice, or never.

    With checksums, Spark's default from 4.2 on, it runs the lost tasks of the join, sees that their rows go elsewhere,
    and has all of those run again that have read them. Without, it runs all tasks of both, as the order is any.
    """
    lost, shuffled, executors = tmp_path / "lost", FOLDERS[0], len(FOLDERS)

    def turned(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn rows round once output is lost. Spark takes what this gives to be in the same order whenever it runs."""
        for batch in batches:
            yield batch.take(pa.array(range(batch.num_rows)[::-1])) if lost.exists() else batch

    def losing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Lose what one executor has shuffled when a task on each has read its rows, and before there is a third."""
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
    """Both run the join at the same time and write what it gives; the slow one is killed, and leaves nothing."""
    begun = tmp_path / "begun"

    @F.udf("long")
    def slow(number: int) -> int:
        if number == 3901:
            with suppress(FileExistsError), begun.open("x") as stream:
                stream.write(str(os.getpid()))
                stream.flush()
                time.sleep(120)  # until it is killed
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
        wait_for(lambda: not psutil.pid_exists(slow_task), "the slow task goes on")
        wait_for(lambda: "RUNNING" not in statuses(attempts(spark, stages, PARTITIONS)[0]), "the slow task goes on")
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
    """Spark starts another in its place, which builds its indexes anew, and runs the tasks again."""
    killed = tmp_path / "killed"
    expected = rows_of(chain(spark))
    out = chain(spark, facts(spark).withColumn("id", deadly("id", 1501, killed)))
    assert_pipelined(out, 3)
    assert rows_of(out) == expected
    assert killed.exists()


def test_an_executor_is_lost_while_slots_are_joined(spark: SparkSession, tmp_path: Path) -> None:
    """With it go its map outputs of both sides: Spark runs these tasks again, and the slots that need them."""
    killed = tmp_path / "killed"
    last = chain(spark).agg(F.max("id")).collect()[0][0]
    with configured(spark, spark_sparkext_partitioned="always", spark_sql_shuffle_partitions=6):
        expected = rows_of(chain(spark))
        out = chain(spark).withColumn("id", deadly("id", last, killed))
        assert "partitioned=32 lines" in plan_of(out)
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


def attempts(spark: SparkSession, stages: Callable[[], list[SparkStageInfo]], size: int) -> list[list[JavaObject]]:
    """The tasks that Spark started for the one stage of so many partitions, for each time that it ran the stage."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()

    def tasks(stage: int, run: int) -> list[JavaObject]:
        found = context.statusStore().taskList(stage, run, 100)
        return [found.apply(number) for number in range(found.size())]

    runs = [[tasks(stage.stageId, run) for run in range(stage.currentAttemptId + 1)] for stage in stages()]
    (wanted,) = [of_stage for of_stage in runs if len({task.index() for task in of_stage[0]}) == size]
    return wanted


def partitions(tasks: list[JavaObject]) -> list[int]:
    """The partitions that tasks compute."""
    return [task.index() for task in tasks]


def statuses(tasks: list[JavaObject]) -> list[str]:
    """What became of tasks, in words of Spark's."""
    return [task.status() for task in tasks]


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def lose_map_output(*folders: Path) -> None:
    """Delete what tasks of executors, of all if none is named, have shuffled."""
    lost = [path for folder in folders or FOLDERS for path in folder.rglob("shuffle_*") if path.is_file()]
    assert lost
    for path in lost:
        path.unlink()


def damage_map_output() -> None:
    """Change the last bytes of what tasks of executors have shuffled."""
    shuffled = [path for folder in FOLDERS for path in folder.rglob("shuffle_*.data") if path.stat().st_size]
    assert shuffled
    for path in shuffled:
        path.write_bytes(path.read_bytes()[:-9] + b"damaged..")


def assert_all_tasks_reported(out: DataFrame) -> None:
    """Prove that what the tasks of the last run told has come to the driver from both executors."""
    told = sparkext.report(out)
    assert [task.task.partition for task in told.tasks] == list(range(PARTITIONS))
    assert told.joins[-1].rows_out > 0


def indexes(folder: Path, made_from: str = "broadcast_*") -> set[Path]:
    """The index files of the executors of a worker, by what they are made from; Spark's own are those of shuffles."""
    return {path for path in folder.rglob(f"{made_from}.index") if not path.name.startswith("shuffle_")}


def assert_nothing_unfinished(*folders: Path) -> None:
    """Soon nothing is left of what workers and writers put on disks for the time of a task."""
    deadline = time.monotonic() + 30
    while left := {path for folder in folders for path in folder.rglob("*") if UNFINISHED.search(path.name)}:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def orphans(folder: Path) -> set[Path]:
    """The index files whose broadcast is gone."""
    return {index for index in indexes(folder) if not index.with_name(index.name.partition(".")[0]).exists()}
