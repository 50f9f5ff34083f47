"""Rare situations around a join: tables with declared partitioning, streams, pruned partitions, recomputed rows.

Recomputed rows may have another order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.planned_joins import assert_like_spark, assert_pipelined, metrics_of, mode, pipelines_of, plan_of
from tests.support.rows import rows_of
from tests.support.sessions import configured

HERE = Path(__file__).parent
HINT = "/*+ PIPELINED_JOIN(dims) */"


# --- recomputed rows ---


@pytest.mark.parametrize("side", ["rows", "columns", "fused"])
def test_rows_come_in_any_order(spark: SparkSession, tmp_path: Path, side: str) -> None:
    """The order depends on free memory. If rows are distributed by their order, Spark has to recompute all of them."""
    probe = spark.range(0, 4000, 1, 2).selectExpr("id AS k", "id % 7 AS v")
    if side != "rows":
        probe.write.parquet(str(tmp_path / "probe"))
        probe = spark.read.parquet(str(tmp_path / "probe"))
    build = spark.range(500).selectExpr("id * 3 AS dk", "id % 5 AS w").hint("pipelined_join")
    orders = []
    for budget in (100, 1000):
        settings = {"spark_sparkext_morsel_maxRows": budget, "spark_sparkext_scan_fused": str(side == "fused").lower()}
        with configured(spark, **settings):
            out = probe.join(build, (F.col("k") == F.col("dk")) & (F.col("v") > F.col("w")), "left")
            assert_pipelined(out, 1)
            orders.append([tuple(row) for row in out.collect()])
            rows = out._jdf.queryExecution().executedPlan().execute()
            assert rows.outputDeterministicLevel().toString() == "UNORDERED"
    assert Counter(orders[0]) == Counter(orders[1])


# --- partition pruning ---


@pytest.fixture(scope="module")
def parted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("parted")
    rows = spark.range(2000).selectExpr("id", "nullif(id % 20, 5) AS p", "repeat(string(id), 50) AS s")
    rows.write.partitionBy("p").parquet(str(folder / "facts"))
    dims = spark.range(20).selectExpr("nullif(id, 10) AS dp", "concat('n', id % 3) AS g", "id % 7 AS w")
    dims.coalesce(1).write.parquet(str(folder / "dims"))
    for name in ("facts", "dims"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(f"parted_{name}")
    yield
    for name in ("facts", "dims"):
        spark.catalog.dropTempView(f"parted_{name}")


PRUNED = {
    "inner": f"SELECT {HINT} id, s, g FROM parted_facts JOIN parted_dims dims ON p = dp WHERE g = 'n1' AND w < 3",
    "semi": f"""SELECT id, s FROM parted_facts LEFT SEMI JOIN
        (SELECT {HINT} * FROM parted_dims dims WHERE g = 'n1' AND w < 3) dims ON p = dp""",
    "null matches null": f"""SELECT {HINT} id, s, g FROM parted_facts JOIN parted_dims dims ON p <=> dp
        WHERE g = 'n1' AND (dp IS NULL OR w < 2)""",
    "beside Spark's": f"""SELECT {HINT} id, s, dims.g FROM parted_facts JOIN parted_dims dims ON p = dims.dp
        JOIN (SELECT * FROM parted_dims WHERE w < 3) e ON p = e.dp WHERE dims.g = 'n1'""",
}
WITHOUT_BROADCASTS = {
    "spark_sql_optimizer_dynamicPartitionPruning_reuseBroadcastOnly": "false",
    "spark_sql_optimizer_dynamicPartitionPruning_fallbackFilterRatio": "10",
}


@pytest.mark.parametrize("reused", [True, False], ids=["by a broadcast", "by a query"])
@pytest.mark.parametrize("name", PRUNED)
@pytest.mark.usefixtures("parted")
def test_partitions_that_the_build_side_rules_out(spark: SparkSession, name: str, reused: bool) -> None:
    """If Spark has a dynamic filter for partitions, Spark reads. Otherwise workers skip partitions without a match."""
    with configured(spark, **({} if reused else WITHOUT_BROADCASTS)):
        out = assert_like_spark(spark, lambda: spark.sql(PRUNED[name]))
    assert pipelines_of(out) == [1]
    told = metrics_of(out)
    if "dynamicpruning#" in plan_of(out):
        assert "scan=columns from Spark (partitions chosen at run time)" in plan_of(out)
        assert told["numPartitions"] == (3 if name != "beside Spark's" or not reused else 9)
    else:
        assert "scan=fused" in plan_of(out)
        assert (told["rowGroups"], told["probeRows"]) == (6, 300)


# --- tables with declared partitioning ---


@pytest.fixture(scope="module")
def keyed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Register tables of a source, compiled here, whose partitions each hold the rows of one key."""
    folder = tmp_path_factory.mktemp("keyed")
    (folder / "classes").mkdir()
    jars = Path(pyspark.__file__).parent / "jars"
    arguments = [
        "-classpath",
        os.pathsep.join(map(str, jars.glob("*.jar"))),
        "-d",
        str(folder / "classes"),
        str(HERE / "scripts" / "KeyedSource.scala"),
    ]
    jvm = spark.sparkContext._jvm
    array = spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(arguments))
    for number, argument in enumerate(arguments):
        array[number] = argument
    assert getattr(getattr(jvm.scala.tools.nsc, "Main$"), "MODULE$").process(array)
    with zipfile.ZipFile(folder / "keyed.jar", "w") as jar:
        for path in (folder / "classes").rglob("*.class"):
            jar.write(path, path.relative_to(folder / "classes"))
    spark.sql(f"ADD JAR '{folder / 'keyed.jar'}'")
    tables = {"a": [0, 0, 1, 1, 1, 2, 4], "b": [0, 1, 1, 2, 3, 3, 5], "c": [1, 2, 2, 2, 3, 4, 4]}
    for name, keys in tables.items():
        source = spark.read.format("org.example.KeyedSource").option("keys", ",".join(map(str, keys)))
        frame = source.option("label", name).load().toDF(f"{name}k", f"{name}v", f"{name}s")
        frame.createOrReplaceTempView(f"keyed_{name}")
    yield
    for name in tables:
        spark.catalog.dropTempView(f"keyed_{name}")


OURS = "SELECT /*+ PIPELINED_JOIN(b) */ * FROM keyed_a JOIN keyed_b b ON {}"
ROWS = "SELECT /*+ PIPELINED_JOIN(b) */ * FROM keyed_a JOIN (SELECT id AS bk, id * 2 AS bv FROM range(4)) b ON {}"
# Spark's own joins, with the number of shuffles in each plan. The partitions that are read from a build side of this
# source may not depend on the join above it. Before 4.2, Spark requires sources of this kind in all leaves below.
SHUFFLES = 2 if pyspark.__version__ < "4.2" else 0
KEYED = {
    "on the key": (OURS.format("ak = bk"), 0, 0),
    "below Spark's, on the key": (f"SELECT * FROM ({ROWS.format('ak = bk')}) JOIN keyed_c ON ak = ck", 1, SHUFFLES),
    "below Spark's, on another column": (
        f"SELECT * FROM ({ROWS.format('av % 5 = bk')}) JOIN keyed_c ON ak = ck",
        1,
        SHUFFLES,
    ),
    "below a full one": (f"SELECT * FROM ({OURS.format('av % 5 = bk')}) FULL JOIN keyed_c ON ak = ck", 1, 2),
    "a range, below Spark's": (
        f"SELECT * FROM ({OURS.format('av >= bv AND av < bv + 2')}) JOIN keyed_c ON ak = ck",
        1,
        2,
    ),
    "below a group": (f"SELECT ak, count(*), sum(bv) FROM ({ROWS.format('av % 5 = bk')}) GROUP BY ak", 0, 0),
    "as the build side": (
        "SELECT /*+ PIPELINED_JOIN(x) */ * FROM keyed_c JOIN"
        " (SELECT * FROM keyed_a JOIN keyed_b ON ak = bk) x ON ak = ck",
        1,
        0,
    ),
}


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.usefixtures("keyed")
def test_joins_by_storage(spark: SparkSession, clustered: bool) -> None:
    """Storage-partitioned joins need no shuffle, even with a pipeline below, unless that reads other such tables."""
    bucketing = "spark_sql_sources_v2_bucketing_"
    settings = {
        f"{bucketing}enabled": "true",
        f"{bucketing}pushPartValues_enabled": "true",
        f"{bucketing}partiallyClusteredDistribution_enabled": str(clustered).lower(),
        "spark_sql_requireAllClusterKeysForCoPartition": "false",
        "spark_sql_autoBroadcastJoinThreshold": "-1",
        "spark_sql_adaptive_enabled": "false",
    }
    for name, (query, joins, shuffles) in KEYED.items():
        with configured(spark, spark_sql_sources_v2_bucketing_enabled="false"), mode(spark, "off"):
            expected = rows_of(spark.sql(query))
        with configured(spark, **settings):
            out = spark.sql(query)
            assert rows_of(out) == expected, name
        assert pipelines_of(out) == [1], name
        assert plan_of(out).count("SortMergeJoin") == joins and plan_of(out).count("Exchange") == shuffles, plan_of(out)


# --- streams ---


def streamed(stream: DataFrame, into: str, between: Callable[[], None]) -> tuple[Counter[str], str]:
    """Return the rows of two batches and the plan of the last; the second batch begins after `between` returns."""
    query = stream.writeStream.format("memory").queryName(into).start()
    try:
        query.processAllAvailable()
        between()
        query.processAllAvailable()
        plan = str(query._jsq.explainInternal(False))
        return rows_of(stream.sparkSession.table(into)), plan
    finally:
        query.stop()


def test_a_static_join_within_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The join is a pipeline in every batch. Files replaced between two batches are read again, as in Spark."""
    files = {n: spark.range(6).selectExpr("id AS k", f"concat('{n} ', id) AS s") for n in ("one", "two")}
    for name, frame in files.items():
        frame.coalesce(1).write.parquet(str(tmp_path / name))
    told: dict[str, tuple[Counter[str], str]] = {}
    for name in ("hint", "off"):
        (tmp_path / name).mkdir()
        facts, static = tmp_path / name / "facts", tmp_path / name / "static.parquet"
        spark.range(4).selectExpr("id AS k").coalesce(1).write.parquet(str(facts))

        def replaced(by: str, static: Path = static) -> None:
            (part,) = (tmp_path / by).glob("part-*")
            shutil.copy(part, static.with_suffix(".new"))
            static.with_suffix(".new").replace(static)

        def next_batch(facts: Path = facts, replaced: Callable[[str], None] = replaced) -> None:
            replaced("two")
            spark.range(2, 6).selectExpr("id AS k").coalesce(1).write.mode("append").parquet(str(facts))

        replaced("one")
        with mode(spark, name):
            dims = spark.range(5).selectExpr("id AS dk", "id * 10 AS w").hint("pipelined_join")
            kept = spark.read.parquet(str(static)).join(dims, F.col("k") == F.col("dk"))
            stream = spark.readStream.schema("k bigint").parquet(str(facts)).join(kept, "k")
            told[name] = streamed(stream, f"told_{name}", next_batch)
    assert told["hint"][0] == told["off"][0] and sum(told["off"][0].values()) == 7
    assert "PipelinedJoin [inner: k = dk" in told["hint"][1] and "PipelinedJoin" not in told["off"][1]


def test_two_streams(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(9).selectExpr("id AS k", "timestamp_seconds(id) AS at").write.parquet(str(tmp_path / "source"))
    one, other = (
        spark.readStream.schema("k bigint, at timestamp")
        .parquet(str(tmp_path / "source"))
        .withWatermark("at", "1 hour")
        for _ in range(2)
    )
    with configured(spark, spark_sql_shuffle_partitions=1):
        stream = one.join(other.hint("pipelined_join").toDF("dk", "dat"), F.col("k") == F.col("dk"))
        told, plan = streamed(stream.select("k", "dk"), "told_of_two", lambda: None)
    assert told == Counter(f"({number}, {number})" for number in range(9))
    assert "StreamingSymmetricHashJoin" in plan and "PipelinedJoin [" not in plan


# --- disks ---


def test_full_disks(tmp_path: Path) -> None:
    """Spark joins build sides that do not fit on the disks of driver and executors, and the session continues."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk, and not everywhere")
    try:
        path = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, HERE / "scripts" / "on_small_disks.py", disk, tmp_path],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            env={**os.environ, "PYTHONPATH": path},
            cwd=tmp_path,
        )
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
    assert done.returncode == 0 and done.stdout.splitlines()[-1:] == ["all is well"], done.stdout + done.stderr[-9000:]
