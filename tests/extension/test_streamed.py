"""Partitioned joins whose partitions run while the probe side is streamed to them: Spark's rows, or else in waves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkext import report
from tests.extension.joined_tables import write_joined_tables
from tests.extension.test_cluster import run_script
from tests.extension.test_partitioned import leftovers, local_folders
from tests.support.planned_joins import assert_like_spark, metrics_of, plan_of
from tests.support.rows import rows_of
from tests.support.sessions import configured, started_with

pytestmark = pytest.mark.skipif(
    tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3), reason="Spark has had no pipelined shuffle before 4.3"
)

HINT = "/*+ PIPELINED_JOIN(r, s) */"
_IN_WAVES = re.compile(r"partitions=in waves \((.*?)\)(?: |$)", re.MULTILINE)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session with views `l` and `r` in files, `empty`, and a small `s`.

    `l` and `r` have one hot key, nulls, and keys that only one of them has.
    """
    write_joined_tables(spark, tmp_path_factory.mktemp("streamed"))
    spark.sql("SELECT * FROM l WHERE a < 0").createOrReplaceTempView("empty")
    spark.range(50).selectExpr("id AS sk", "id % 7 AS c").createOrReplaceTempView("s")
    settings = {"spark_sparkext_partitioned_stages": "pipelined", "spark_sql_files_maxPartitionBytes": "20k"}
    with configured(spark, spark_sparkext_partitioned="always", **settings, spark_sql_shuffle_partitions=4):
        yield spark
    for name in ("l", "r", "empty", "s"):
        spark.catalog.dropTempView(name)


def joined(spark: SparkSession, kind: str, condition: str = "k = rk", left: str = "l", right: str = "r") -> DataFrame:
    return spark.sql(f"SELECT {HINT} * FROM {left} l {kind} JOIN {right} r ON {condition}")


def assert_streamed(spark: SparkSession, query: Callable[[], DataFrame]) -> DataFrame:
    out = assert_like_spark(spark, query)
    assert "streamed by 1 task to 1 partition" in plan_of(out), plan_of(out)
    assert metrics_of(out)["partitions"] == 1
    return out


def assert_in_waves(spark: SparkSession, query: Callable[[], DataFrame], reason: str) -> None:
    out = assert_like_spark(spark, query)
    assert reason in _IN_WAVES.findall(plan_of(out)), plan_of(out)


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("kind", ["inner", "left", "right", "left semi", "left anti"])
def test_every_kind(tables: SparkSession, kind: str, adaptive: bool) -> None:
    with configured(tables, spark_sql_adaptive_enabled=str(adaptive).lower()):
        assert_streamed(tables, lambda: joined(tables, kind))


@pytest.mark.parametrize("kind", ["left", "left semi"])
@pytest.mark.parametrize(
    ("left", "right"),
    [("empty", "r"), ("l", "(SELECT * FROM r WHERE b < 0)"), ("empty", "(SELECT * FROM r WHERE b < 0)")],
)
def test_sides_without_rows(tables: SparkSession, kind: str, left: str, right: str) -> None:
    with configured(tables, spark_sql_adaptive_enabled="false"):  # adaptive execution would detect the empty side
        assert_streamed(tables, lambda: joined(tables, kind, left=left, right=right))


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("kind", ["inner", "left anti"])
@pytest.mark.parametrize(
    "settings",
    [
        {"spark_sparkext_debug_hashMask": "0"},
        {"spark_sparkext_debug_partitions": "random"},
        {"spark_sparkext_debug_partitions": "hash"},
        {"spark_sparkext_memory_maxBytes": "64k"},
        {"spark_sparkext_scan_fused": "false"},
    ],
    ids=lambda settings: "=".join(*settings.items()),
)
def test_hostile_settings(tables: SparkSession, kind: str, settings: dict[str, str]) -> None:
    with configured(tables, **settings):
        assert_streamed(tables, lambda: joined(tables, kind))


@pytest.mark.parametrize("condition", ["k <=> rk", "k = rk AND a % 7 < b", "k = rk AND x < y", "k + 1 = rk AND b > 3"])
@pytest.mark.parametrize("kind", ["", "left"])
def test_conditions(tables: SparkSession, kind: str, condition: str) -> None:
    assert_streamed(tables, lambda: joined(tables, kind, condition))


def test_what_rides_along_and_what_is_below(tables: SparkSession) -> None:
    """A small build side is replicated. A join below and a filter run in the tasks that route rows."""
    with configured(tables, spark_sparkext_partitioned="auto", spark_sparkext_buildSide_maxBytes="10k"):
        query = f"SELECT {HINT} * FROM l JOIN r ON k = rk LEFT JOIN s ON b = sk WHERE a % 3 > 0"
        assert_streamed(tables, lambda: tables.sql(query))
        below = f"SELECT {HINT} * FROM (SELECT *, a % 50 AS b0 FROM l) l JOIN s ON b0 = sk JOIN r ON k + c = rk"
        assert_streamed(tables, lambda: tables.sql(below))


def test_rows_are_written(tables: SparkSession, tmp_path: Path) -> None:
    out = joined(tables, "left")
    out.write.parquet(str(tmp_path / "out"))
    with configured(tables, spark_sparkext_mode="off"):
        assert rows_of(tables.read.parquet(str(tmp_path / "out"))) == rows_of(joined(tables, "left"))


def test_a_report_of_what_streamed(tables: SparkSession) -> None:
    out = joined(tables, "")
    out.collect()
    found = report(out)
    assert found.partitions is not None and len(found.partitions.by_hash) == 1 and found.partitions.skews, str(
        found.partitions
    )
    assert "1 partition in 1 interval" in str(found) or "intervals" in str(found)
    assert f"{tables.table('l').where('k IS NOT NULL').count():,} rows in" in str(found)


def test_nothing_is_left_beside_tasks(tables: SparkSession) -> None:
    joined(tables, "").collect()
    assert not leftovers(tables)
    beside = [
        path for folder in local_folders(tables) for kind in ("proposal", "new") for path in folder.rglob(f"*.{kind}")
    ]
    assert not beside, beside


def test_a_plan_runs_twice(tables: SparkSession) -> None:
    out = joined(tables, "")
    assert rows_of(out) == rows_of(out)


def test_an_error_of_a_condition_is_sparks(tables: SparkSession) -> None:
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        joined(tables, "", "k = rk AND 10 / (b - 7) > a").collect()


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (
            "SELECT x, count(*) FROM (SELECT {} * FROM l JOIN r ON k = rk) GROUP BY x",
            "another shuffle belongs to the same job",
        ),
        (
            "SELECT {} k, count(*) FROM l JOIN r ON k = rk GROUP BY k",
            "all rows of a key must be emitted by the same partition",
        ),
        (
            "SELECT {} * FROM l FULL JOIN r ON k = rk",
            "a full outer join emits unmatched build rows after all other rows",
        ),
        ("SELECT {} a, b FROM l JOIN r ON k = rk ORDER BY a DESC, b LIMIT 7", "a limit reads only some partitions"),
        ("SELECT {} /*+ COALESCE(1) */ * FROM l JOIN r ON k = rk", "Coalesce belongs to the same job"),
        ("SELECT {} a, b FROM l JOIN r ON k = rk UNION ALL SELECT 1, 2", "Union belongs to the same job"),
        (
            "SELECT {} * FROM (SELECT * FROM l TABLESAMPLE (50 PERCENT) REPEATABLE (3)) l JOIN r ON k = rk",
            "Sample belongs to the same job",
        ),
        ("SELECT {} * FROM l JOIN r ON a < b", "units of a join matrix have no buckets"),
    ],
)
def test_what_runs_in_waves(tables: SparkSession, query: str, reason: str) -> None:
    assert_in_waves(tables, lambda: tables.sql(query.format(HINT)), reason)


def test_a_cached_side_may_hide_a_shuffle(tables: SparkSession) -> None:
    cached = tables.sql("SELECT k, count(*) AS a FROM l GROUP BY k").cache()
    cached.createOrReplaceTempView("counted")
    assert_in_waves(tables, lambda: joined(tables, "", left="counted"), "TableCacheQueryStage belongs to the same job")
    cached.unpersist()


@pytest.mark.parametrize("key", ["spark.authenticate", "spark.network.crypto.enabled"])
def test_rows_do_not_travel_in_clear_text(tables: SparkSession, key: str) -> None:
    with started_with(tables, key, "true"):
        assert_in_waves(tables, lambda: joined(tables, ""), f"Spark's pipelined shuffle does not follow {key}")


def test_a_probe_side_without_partitions(tables: SparkSession, tmp_path: Path) -> None:
    tables.sql("SELECT k, a, 1 AS p FROM l").write.partitionBy("p").parquet(str(tmp_path / "parts"))
    tables.read.parquet(str(tmp_path / "parts")).createOrReplaceTempView("parts")
    for kind in ("", "left"):
        with configured(tables, spark_sql_adaptive_enabled="false"):
            out = assert_like_spark(
                tables, lambda kind=kind: joined(tables, kind, left="(SELECT * FROM parts WHERE p = 2)")
            )  # type: ignore[misc]
            assert "streamed by" in plan_of(out)
    tables.catalog.dropTempView("parts")


def test_two_partitioned_joins_run_in_waves(tables: SparkSession) -> None:
    both = lambda: joined(tables, "").union(joined(tables, "left anti").selectExpr("*", "0", "0", "''"))  # noqa: E731
    assert_in_waves(tables, both, "several joins are partitioned")


def test_a_limit_is_not_waited_for(tables: SparkSession) -> None:
    assert len(joined(tables, "").limit(3).collect()) == 3
    joined(tables, "").show(2)


def test_executors_that_come_and_go(tables: SparkSession) -> None:
    with started_with(tables, "spark.dynamicAllocation.enabled", "true"):
        assert_in_waves(tables, lambda: joined(tables, ""), "spark.dynamicAllocation.enabled is set")


@pytest.mark.xdist_group("cluster")
def test_executors_of_two_processes(tmp_path: Path) -> None:
    run_script("streamed_partitions.py", tmp_path, "local-cluster[2,2,1024]")
