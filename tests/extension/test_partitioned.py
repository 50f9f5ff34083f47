"""Joins that partition both sides by their keys: they give the rows of Spark's own joins, and report how they ran."""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import report
from sparkext.plans.shuffle.balancer import skew
from sparkext.reports.partition_loads import PartitionLoads
from tests.extension.joined_tables import write_joined_tables
from tests.support.planned_joins import (
    assert_declined,
    assert_like_spark,
    assert_pipelined,
    metrics_of,
    pipelines_of,
    plan_of,
    reasons_of,
)
from tests.support.rows import rows_of
from tests.support.sessions import configured, started_with

KINDS = ("inner", "left", "right", "full", "left semi", "left anti")
HINT = "/*+ PIPELINED_JOIN(r) */"
_EXCHANGE = re.compile(r"partitioned=(\d+) buckets? of joins? ([\d, ]+)")
_MATRIX = re.compile(r"partitioned=units of a matrix of joins? ([\d, ]+)")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session with these views: `l` and `r` in files, `empty`, and small `s` and `t`.

    `l` and `r` have several splits, one hot key, and keys that only one of them has.
    """
    write_joined_tables(spark, tmp_path_factory.mktemp("partitioned"))
    spark.sql("SELECT * FROM l WHERE a < 0").createOrReplaceTempView("empty")
    spark.range(50).selectExpr("id AS sk", "id % 7 AS c").createOrReplaceTempView("s")
    spark.range(400).selectExpr("id + 100 AS tk", "id AS d").createOrReplaceTempView("t")
    settings = {"spark_sparkext_partitioned": "always", "spark_sql_files_maxPartitionBytes": "20k"}
    with configured(spark, **settings, spark_sql_shuffle_partitions=4):
        yield spark
    for name in ("l", "r", "empty", "s", "t"):
        spark.catalog.dropTempView(name)


def exchanges_of(df: DataFrame) -> list[tuple[int, str]]:
    """Return the number of buckets and the partitioned joins of each partitioned pipeline in the plan, top down."""
    return [(int(buckets), joins.strip()) for buckets, joins in _EXCHANGE.findall(plan_of(df))]


def joined(spark: SparkSession, kind: str, condition: str = "k = rk", left: str = "l", right: str = "r") -> DataFrame:
    return spark.sql(f"SELECT {HINT} * FROM {left} l {kind} JOIN {right} r ON {condition}")


def assert_partitioned(spark: SparkSession, query: Callable[[], DataFrame], *joins: str) -> DataFrame:
    """Assert that these joins of the pipelines, top down, are partitioned, and that the rows equal Spark's."""
    out = assert_like_spark(spark, query)
    assert [told for _, told in exchanges_of(out)] == list(joins), plan_of(out)
    assert metrics_of(out)["partitions"] >= 1
    return out


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(tables: SparkSession, kind: str, adaptive: bool) -> None:
    with configured(tables, spark_sql_adaptive_enabled=str(adaptive).lower()):
        out = assert_partitioned(tables, lambda: joined(tables, kind), "1")
        assert_pipelined(out, 1)
        assert exchanges_of(out)[0][0] == 16
        assert "scan=sent to partitions" in plan_of(out)


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("kind", ["left", "full", "left semi"])
@pytest.mark.parametrize(
    ("left", "right"),
    [("empty", "r"), ("l", "(SELECT * FROM r WHERE b < 0)"), ("empty", "(SELECT * FROM r WHERE b < 0)")],
)
def test_sides_without_rows(tables: SparkSession, kind: str, left: str, right: str) -> None:
    with configured(tables, spark_sql_adaptive_enabled="false"):  # adaptive execution would detect the empty side
        assert_partitioned(tables, lambda: joined(tables, kind, left=left, right=right), "1")


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("kind", ["inner", "full", "left anti"])
@pytest.mark.parametrize(
    "settings",
    [
        {"spark_sparkext_debug_hashMask": "0"},
        {"spark_sparkext_morsel_maxRows": "1"},
        {"spark_sql_shuffle_partitions": "1"},
        {"spark_sql_shuffle_partitions": "20000"},
        {"spark_sparkext_memory_maxBytes": "64k"},
        {"spark_sparkext_scan_fused": "false"},
    ],
    ids=lambda settings: "=".join(*settings.items()),
)
def test_hostile_settings(tables: SparkSession, kind: str, settings: dict[str, str]) -> None:
    """All keys in one bucket, one-row morsels, one bucket, more buckets than rows, little memory, rows from the JVM."""
    rows = "(SELECT * FROM l WHERE a < 300)" if "maxRows" in str(settings) else "l"
    with configured(tables, **settings):
        assert_partitioned(tables, lambda: joined(tables, kind, left=rows), "1")


def test_nested_columns(tables: SparkSession, tmp_path: Path) -> None:
    """Strings in files may have 64-bit offsets at any nesting depth; Spark declares 32-bit ones."""
    n, text = 300, pa.large_string()
    columns = {
        "k": pa.array(range(n), pa.int64()),
        "xs": pa.array([None if i % 9 == 0 else [f"x{i}", None, "y" * (i % 5)] for i in range(n)], pa.large_list(text)),
        "s": pa.array([None if i % 7 == 0 else {"t": f"t{i}"} for i in range(n)], pa.struct([("t", text)])),
        "m": pa.array([[(f"k{i}", f"v{i}")] * (i % 2) for i in range(n)], pa.map_(text, text)),
    }
    pq.write_table(pa.table(columns), tmp_path / "wide.parquet")
    tables.read.parquet(str(tmp_path)).createOrReplaceTempView("wide")
    for kind in ("inner", "full"):
        assert_partitioned(tables, lambda kind=kind: joined(tables, kind, left="wide"), "1")
    tables.catalog.dropTempView("wide")


def test_few_rows_make_one_partition_without_asking_the_balancer(tables: SparkSession) -> None:
    def stages(partitions: str) -> int:
        with configured(tables, spark_sparkext_debug_partitions=partitions):
            out = assert_partitioned(tables, lambda: joined(tables, "inner"), "1")
            assert metrics_of(out)["partitions"] == 1
            told = report(out).partitions
            assert told is not None and len(told.planned) == 1
        executions = tables._jsparkSession.sharedState().statusStore().executionsList()
        tables.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        return max(executions.apply(at).stages().size() for at in range(executions.size() - 2, executions.size()))

    assert stages("hash") == stages("planned") + 1


@pytest.mark.parametrize("kind", KINDS)
def test_buckets_anywhere(tables: SparkSession, kind: str) -> None:
    """Buckets are assigned to random partitions, and many buckets are split."""
    with configured(tables, spark_sparkext_debug_partitions="random"):
        for _ in range(3):
            out = assert_partitioned(tables, lambda: joined(tables, kind), "1")
            assert metrics_of(out)["partitions"] > 1


def assert_in_a_matrix(spark: SparkSession, query: Callable[[], DataFrame], joins: str = "1") -> DataFrame:
    """Assert that units of a join matrix run these joins, and that the rows equal Spark's."""
    out = assert_like_spark(spark, query)
    assert [told.strip() for told in _MATRIX.findall(plan_of(out))] == [joins], plan_of(out)
    assert metrics_of(out)["partitions"] >= 1
    return out


NOTHING = "(SELECT * FROM r WHERE b < 0)"
UNEQUAL = {
    "range": "a % 60 > b AND a % 60 < b + 3",
    "one-sided": "a > b * 120",
    "theta": "(a + b) % 97 = 3",
}


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("partitions", ["planned", "random"])
@pytest.mark.parametrize("condition", UNEQUAL)
@pytest.mark.parametrize("kind", KINDS)
def test_joins_without_an_equality(tables: SparkSession, kind: str, condition: str, partitions: str) -> None:
    left, right = "(SELECT * FROM l WHERE a < 1500)", "(SELECT * FROM r WHERE rk < 500 OR b = 7)"
    with configured(tables, spark_sparkext_debug_partitions=partitions):
        assert_in_a_matrix(tables, lambda: joined(tables, kind, UNEQUAL[condition], left=left, right=right))


def test_a_matrix_has_units_for_all_cores(tables: SparkSession) -> None:
    """By default. The report gives the number of parts of both sides."""
    out = assert_in_a_matrix(tables, lambda: tables.sql(f"SELECT {HINT} count(*), sum(a * b) FROM l JOIN r ON a > b"))
    told = report(out).partitions
    assert told is not None and told.cut is not None, told
    assert told.cut[0] * told.cut[1] == metrics_of(out)["partitions"] == 2
    assert "units of a join matrix" in str(report(out))


def test_only_inner_joins_divide_their_build_sides(tables: SparkSession) -> None:
    """In other join types, a single unit has to see all build rows to find that a probe row has no match."""
    with configured(tables, spark_sparkext_debug_partitions="random"):
        cuts = set()
        for kind, times in (("inner", 12), ("left", 4)):
            for _ in range(times):
                query = f"SELECT {HINT} count(*), sum(a * b) FROM l {kind} JOIN r ON a % 60 > b AND a % 60 < b + 3"
                told = report(assert_in_a_matrix(tables, lambda query=query: tables.sql(query))).partitions
                assert told is not None and told.cut is not None
                cuts.add((kind, told.cut[1] > 1))
    assert ("inner", True) in cuts and ("left", True) not in cuts, cuts


@pytest.mark.parametrize("partitions", ["planned", "random"])
@pytest.mark.parametrize(("left", "right"), [("empty", "r"), ("l", NOTHING), ("empty", NOTHING)])
def test_full_joins_of_nothing(tables: SparkSession, left: str, right: str, partitions: str) -> None:
    with configured(tables, spark_sparkext_debug_partitions=partitions):
        assert_in_a_matrix(tables, lambda: joined(tables, "full", UNEQUAL["range"], left=left, right=right))


def test_full_joins_without_an_equality_have_owners(tables: SparkSession) -> None:
    """An additional task (owner) finds the unmatched rows of each part of the build side.

    Joins with small build sides above the full join run in the same pipeline.
    """
    two = """SELECT /*+ PIPELINED_JOIN(r, u) */ count(*), count(a), count(b), sum(a), sum(b), sum(c)
        FROM (SELECT * FROM l WHERE a % 8 = 3) FULL JOIN r ON a % 60 > b + 30 AND (a + b) % 3 = 1
        LEFT JOIN (SELECT * FROM s WHERE sk < 5) u ON b < c"""
    owners = 0
    with configured(tables, spark_sparkext_debug_partitions="random", spark_sparkext_partitioned="auto"):
        for _ in range(4):
            told = report(assert_in_a_matrix(tables, lambda: tables.sql(two))).partitions
            assert told is not None and told.cut is not None and told.cut[1] == 1
            assert len(told.planned) == told.cut[0] + told.owners
            owners = max(owners, told.owners)
    assert owners > 0
    with configured(tables, spark_sparkext_partitioned="never"):
        few = "(SELECT * FROM l WHERE a < 60)"
        refused = assert_like_spark(tables, lambda: joined(tables, "full", UNEQUAL["one-sided"], few))
        why = (
            "a full outer join without an equality has to be partitioned, which is not possible:"
            " spark.sparkext.partitioned is never"
        )
        assert_declined(refused, why)


HOSTILE = {"spark_sparkext_debug_partitions": "random", "spark_sparkext_morsel_maxRows": "7"}
CONDITIONS = ("a % 3 > 0", "b % 5 <> 2", "a % 60 <> b", "(a + b) % 3 = 1 AND a > 9", "a % 60 > b")


@pytest.mark.reduced("pairs", reason="ten joins each; keys, kinds and ways meet in pairs")
@pytest.mark.parametrize("way", ["always", "never"])
@pytest.mark.parametrize("kind", ["full", "right"])
@pytest.mark.parametrize("key", ["k = rk", "k <=> rk"])
def test_conditions_of_full_joins(tables: SparkSession, kind: str, key: str, way: str) -> None:
    """One-sided conditions, conditions that Spark evaluates, compiled ones; a row whose pairs all fail is unmatched."""
    with configured(tables, spark_sparkext_partitioned=way):
        for settings, rows in ({}, 1200), (HOSTILE, 300):

            def query(left: str = f"(SELECT * FROM l WHERE a < {rows})") -> DataFrame:
                joins = [joined(tables, kind, f"{key} AND {condition}", left=left) for condition in CONDITIONS]
                return reduce(DataFrame.unionAll, joins)

            with configured(tables, **settings):
                assert_pipelined(assert_like_spark(tables, query), *[1] * len(CONDITIONS))


def test_chains_of_joins_without_an_equality(tables: SparkSession) -> None:
    """They share a join matrix, also with joins of small build sides. A join with a key has an exchange of its own."""
    two = """SELECT /*+ PIPELINED_JOIN(r, u) */ count(*), sum(a), sum(b), sum(c) FROM l
        JOIN r ON a % 60 > b AND a % 60 < b + 3 JOIN (SELECT * FROM s WHERE sk < 5) u ON a % 11 < c"""
    with configured(tables, spark_sparkext_debug_partitions="random"):
        assert_in_a_matrix(tables, lambda: tables.sql(two), "1, 2")
    keyed = """SELECT /*+ PIPELINED_JOIN(r, t) */ count(*), sum(b), sum(d) FROM l
        JOIN r ON k = rk JOIN t ON a % 400 > d AND a % 400 < d + 9"""
    out = assert_like_spark(tables, lambda: tables.sql(keyed))
    assert len(_MATRIX.findall(plan_of(out))) == len(_EXCHANGE.findall(plan_of(out))) == 1, plan_of(out)


def test_existence_without_an_equality(tables: SparkSession) -> None:
    query = f"SELECT * FROM l WHERE a < 10 OR EXISTS (SELECT {HINT} 1 FROM r WHERE b > a % 60 + 20)"
    assert_in_a_matrix(tables, lambda: tables.sql(query))


@pytest.mark.parametrize("kind", KINDS)
def test_null_safe_keys(tables: SparkSession, kind: str) -> None:
    assert_partitioned(tables, lambda: joined(tables, kind, "k <=> rk", right="(SELECT * FROM r LIMIT 200)"), "1")


@pytest.mark.parametrize("kind", KINDS[:3] + KINDS[4:])
def test_conditions_and_ranges_beside_the_key(tables: SparkSession, kind: str) -> None:
    assert_partitioned(tables, lambda: joined(tables, kind, "k = rk AND a % 60 < b"), "1")
    assert_partitioned(tables, lambda: joined(tables, kind, "k = rk AND a > b AND a < b * 100"), "1")


def test_computed_keys_of_several_types(tables: SparkSession) -> None:
    assert_partitioned(tables, lambda: joined(tables, "", "k + 1 = rk - 1 AND x = concat('x', b % 13)"), "1")
    assert_partitioned(tables, lambda: joined(tables, "left", "cast(k AS double) = cast(rk AS double)"), "1")


def test_an_existence_join(tables: SparkSession) -> None:
    query = f"SELECT * FROM l WHERE a < 10 OR EXISTS (SELECT {HINT} 1 FROM r WHERE rk = k)"
    assert_partitioned(tables, lambda: tables.sql(query), "1")


def test_a_hot_bucket_is_split(tables: SparkSession) -> None:
    """Most pairs have one key: its probe rows are spread over several partitions, each with all of its build rows."""
    many = "SELECT 7L AS rk, id AS b FROM range(3000) UNION ALL SELECT id, id FROM range(5000)"
    tables.sql(many).createOrReplaceTempView("many")
    sums = f"SELECT {HINT} count(*), sum(a), sum(b) FROM l JOIN many r ON k = rk"
    out = assert_partitioned(tables, lambda: tables.sql(sums), "1")
    told = metrics_of(out)
    assert told["splitBuckets"] > 0 and told["partitions"] > 1, told
    assert told["indexBytes"] == sum(task.indexes[0]["bytes"] for task in report(out).tasks), "each has one of its own"
    loads = report(out).partitions
    assert loads is not None and len(loads.planned) == told["partitions"] and loads.split == told["splitBuckets"], str(
        loads
    )
    assert skew(loads.planned) < skew(loads.by_hash) and all(seconds > 0 for seconds in loads.took), str(loads)
    tables.catalog.dropTempView("many")


def test_partitions_are_planned_by_what_they_took_before(tables: SparkSession) -> None:
    """Loads include the work on the joined rows: a string condition costs many times as much as the join itself."""
    many = "SELECT 7L AS rk, id AS b FROM range(3000) UNION ALL SELECT id, id FROM range(5000)"
    tables.sql(many).createOrReplaceTempView("many")
    condition = "concat(a, '-', b, '-', a, '-', b) LIKE '%1-%2-%'"
    query = f"SELECT {HINT} count(*), sum(a), sum(b) FROM l JOIN many r ON k = rk AND {condition}"

    def ran(text: str) -> PartitionLoads:
        loads = report(assert_partitioned(tables, lambda: tables.sql(text), "1")).partitions
        assert loads is not None
        return loads

    first, second, other = (
        ran(query),
        ran(query),
        ran(f"SELECT {HINT} count(*), sum(b) FROM l LEFT JOIN many r ON k = rk"),
    )
    assert sum(second.planned) > 5 * sum(first.planned), (str(first), str(second))
    assert 1 / 2 < sum(second.planned) / sum(first.took) < 2, (str(first), str(second))
    assert sum(other.planned) == pytest.approx(sum(first.planned), rel=0.5), "another join, of which nothing is known"
    tables.catalog.dropTempView("many")


@pytest.mark.reduced("values", reason="four seconds a query, and the key does not depend on the number of buckets")
@pytest.mark.parametrize("key", ["k = rk", "k <=> rk"])
@pytest.mark.parametrize("buckets", [1, 4])
def test_a_hot_bucket_of_a_full_join_is_split(tables: SparkSession, key: str, buckets: int) -> None:
    """Build rows that no part of a split bucket matches are emitted exactly once.

    With four buckets, the hot bucket has other keys as well; with one, it has all keys.
    """
    many = "SELECT 7L AS rk, id AS b FROM range(8000) UNION ALL SELECT nullif(id, 70), id FROM range(5000)"
    tables.sql(many).createOrReplaceTempView("many")
    with configured(tables, spark_sql_shuffle_partitions=str(buckets)):
        for rows in ("l", "(SELECT * FROM l WHERE k = 7)"):
            sums = f"SELECT {HINT} count(*), sum(a), sum(b), count(k), count(rk) FROM {rows} FULL JOIN many r ON {key}"
            told = metrics_of(assert_partitioned(tables, lambda: tables.sql(sums), "1"))
            assert told["splitBuckets"] > 0 and told["partitions"] > 1, told
    tables.catalog.dropTempView("many")


SHUFFLE = re.compile(r"Exchange hashpartitioning")


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize(
    "rows",
    [
        "k AS g, b FROM l JOIN r ON k = rk",
        "rk AS g, a FROM l JOIN r ON k = rk",
        "rk AS g, x FROM l JOIN r ON k <=> rk",
        "k AS g, a FROM l LEFT SEMI JOIN r ON k = rk",
        "rk AS g, d FROM l JOIN r ON k = rk LEFT JOIN t ON k = tk",
    ],
)
def test_groups_of_the_key_are_not_shuffled(tables: SparkSession, rows: str, adaptive: bool) -> None:
    value = rows.split()[3]
    query = f"""SELECT g, count(*), count(DISTINCT 1), max({value})
        FROM (SELECT /*+ PIPELINED_JOIN(r, t) */ {rows}) GROUP BY g"""
    with configured(tables, spark_sql_adaptive_enabled=str(adaptive).lower()):
        out = assert_partitioned(tables, lambda: tables.sql(query), *(["1, 2"] if "tk" in rows else ["1"]))
    assert not SHUFFLE.search(plan_of(out)), plan_of(out)
    assert metrics_of(out)["splitBuckets"] == 0


def test_what_is_above_groups_of_the_key(tables: SparkSession) -> None:
    """One input with further grouping columns is not shuffled. Two inputs are, because their partitionings differ."""
    groups = f"SELECT {HINT} k, x, count(*) AS n FROM l JOIN r ON k = rk GROUP BY k, x"
    window = f"SELECT *, sum(n) OVER (PARTITION BY k ORDER BY x) FROM ({groups})"
    assert not SHUFFLE.search(plan_of(assert_partitioned(tables, lambda: tables.sql(window), "1")))
    both = f"""SELECT /*+ MERGE(v) */ * FROM ({groups}) u
        JOIN (SELECT {HINT} rk, sum(a) FROM l JOIN r ON k = rk GROUP BY rk) v ON u.k = v.rk"""
    with configured(tables, spark_sparkext_mode="hint"):
        out = assert_partitioned(tables, lambda: tables.sql(both), "1", "1")
    assert len(SHUFFLE.findall(plan_of(out))) >= 2, plan_of(out)


@pytest.mark.parametrize(
    "rows",
    [
        "k AS g FROM l LEFT JOIN r ON k = rk",
        "k AS g FROM l FULL JOIN r ON k = rk",
        "x AS g FROM l JOIN r ON k = rk",
        "tk AS g FROM l JOIN r ON k = rk LEFT JOIN t ON k = tk",
        "k AS g FROM l JOIN r ON k = rk AND a % 2 = b % 2",
    ],
)
def test_groups_that_are_shuffled(tables: SparkSession, rows: str) -> None:
    """Rows with a null key may be in any partition, and grouping by another column needs a shuffle."""
    query = f"SELECT g, count(*) FROM (SELECT {HINT} {rows}) GROUP BY g"
    assert SHUFFLE.search(plan_of(assert_like_spark(tables, lambda: tables.sql(query))))


def test_groups_of_the_key_that_fall_back(tables: SparkSession) -> None:
    """After the fallback, Spark's own joins have the output partitioning that the pipeline promised."""
    query = """SELECT /*+ PIPELINED_JOIN(r, 'partitioned=always'), PIPELINED_JOIN(s, 'partitioned=never') */
        k, count(*), sum(c) FROM l JOIN r ON k = rk JOIN s ON b = sk GROUP BY k"""
    with configured(tables, spark_sparkext_partitioned="auto", spark_sparkext_buildSide_maxBytes="200"):
        out = assert_like_spark(tables, lambda: tables.sql(query))
    assert "fell back to Spark's own joins" in plan_of(out) and exchanges_of(out) == [(16, "1")], plan_of(out)


def test_joins_on_one_key_share_an_exchange(tables: SparkSession) -> None:
    query = """SELECT /*+ PIPELINED_JOIN(r, t, s) */ * FROM l LEFT JOIN r ON k = rk JOIN t ON k = tk"""
    assert_pipelined(assert_partitioned(tables, lambda: tables.sql(query), "1, 2"), 2)


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("kind", ["", "LEFT", "LEFT ANTI"])
@pytest.mark.parametrize("key", ["k = {}", "k <=> {}", "coalesce(k, 130) = {}"])
def test_joins_on_the_key_of_a_full_one_in_several_partitions(tables: SparkSession, kind: str, key: str) -> None:
    many = "SELECT 7L AS rk, id AS b FROM range(3000) UNION ALL SELECT nullif(id, 70), id FROM range(5000)"
    tables.sql(many).createOrReplaceTempView("many")
    nulls = "(SELECT nullif(tk, 120) AS tk, d FROM t)"
    sums = "count(*), sum(a), sum(b), count(k), count(rk)" + ("" if "ANTI" in kind else ", sum(d), count(tk)")
    query = f"""SELECT /*+ PIPELINED_JOIN(r, u) */ {sums}
        FROM l FULL JOIN many r ON {key.format("rk")} {kind} JOIN {nulls} u ON {key.format("tk")}"""
    out = assert_like_spark(tables, lambda: tables.sql(query))
    assert exchanges_of(out) and metrics_of(out)["partitions"] > 1, plan_of(out)
    tables.catalog.dropTempView("many")


def test_a_full_join_that_is_not_partitioned_below_one_that_is(tables: SparkSession) -> None:
    query = """SELECT /*+ PIPELINED_JOIN(r, 'partitioned=never'), PIPELINED_JOIN(t, 'partitioned=always') */ *
        FROM l FULL JOIN r ON k = rk LEFT JOIN t ON k = tk"""
    assert_partitioned(tables, lambda: tables.sql(query), "1")


def test_groups_of_the_key_that_are_cached(tables: SparkSession) -> None:
    """A copy of a cached table has new column ids, which differ from those of its partitioning."""

    def counted(groups: DataFrame) -> DataFrame:
        one, other = groups.alias("one"), groups.alias("other")
        by = other.join(F.broadcast(one), F.col("one.n") == F.col("other.n")).groupBy("one.k")
        return by.agg(F.count("*"), F.min("other.k"))

    grouped = "SELECT {} k, count(*) AS n FROM l JOIN r ON k = rk GROUP BY k"
    cached = tables.sql(grouped.format(HINT)).cache()
    out = counted(cached)
    assert SHUFFLE.search(plan_of(out)), plan_of(out)
    assert rows_of(out) == rows_of(counted(tables.sql(grouped.format(""))))
    cached.unpersist()


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("kind", ["", "LEFT", "LEFT ANTI"])
@pytest.mark.parametrize("key", ["k = {}", "k <=> {}", "coalesce(k, 130) = {}"])
def test_joins_on_the_key_of_a_full_one(tables: SparkSession, kind: str, key: str) -> None:
    """A full join adds rows with null keys, which rows in other partitions may match."""
    nulls = "(SELECT nullif(tk, 120) AS tk, d FROM t)"
    query = f"""SELECT /*+ PIPELINED_JOIN(r, u) */ *
        FROM l FULL JOIN r ON {key.format("rk")} {kind} JOIN {nulls} u ON {key.format("tk")}"""
    out = assert_like_spark(tables, lambda: tables.sql(query))
    assert exchanges_of(out), plan_of(out)


def test_joins_on_other_keys_follow(tables: SparkSession) -> None:
    """The output of the first join is sent directly to the partitions of the next."""
    query = """SELECT /*+ PIPELINED_JOIN(r, t, s) */ x, y, d, c
        FROM l JOIN r ON k = rk JOIN t ON a = tk LEFT JOIN s ON b = sk"""
    out = assert_partitioned(tables, lambda: tables.sql(query), "1", "1", "1")
    assert_pipelined(out, 1, 1, 1)
    assert plan_of(out).count("as build side") == 2


def test_small_build_sides_ride_along(tables: SparkSession) -> None:
    """Only the build side that is too large is partitioned, at any position of the chain."""
    limit = "SELECT /*+ PIPELINED_JOIN(r, t), PIPELINED_JOIN(s) */ x, y, d, c"
    with configured(
        tables, spark_sparkext_partitioned="auto", spark_sparkext_buildSide_maxBytes="10k", spark_sparkext_mode="hint"
    ):
        query = f"{limit} FROM l JOIN s ON b0 = sk JOIN r ON k = rk"
        query = query.replace("FROM l", "FROM (SELECT *, a % 50 AS b0 FROM l) l").replace(", d", "")
        out = assert_partitioned(tables, lambda: tables.sql(query), "2")
        assert_pipelined(out, 2)


def test_a_build_side_over_its_limit_is_partitioned(tables: SparkSession) -> None:
    with configured(tables, spark_sparkext_partitioned="auto"):
        assert exchanges_of(joined(tables, "")) == []
        with configured(tables, spark_sparkext_buildSide_maxBytes="1k"):
            assert_partitioned(tables, lambda: joined(tables, ""), "1")
            with configured(tables, spark_sparkext_partitioned="never"):
                out = joined(tables, "")
                assert exchanges_of(out) == []
                out.collect()
                assert "fell back to Spark's own joins" in plan_of(out)


def test_a_hint_says_when(tables: SparkSession) -> None:
    query = "SELECT /*+ PIPELINED_JOIN(r, 'partitioned={}') */ * FROM l JOIN r ON k = rk"
    with configured(tables, spark_sparkext_partitioned="never"):
        assert_partitioned(tables, lambda: tables.sql(query.format("always")), "1")
    assert exchanges_of(tables.sql(query.format("never"))) == []
    with pytest.raises(Exception, match="one of auto, always, never"):
        tables.sql(query.format("often")).collect()


def test_full_joins_are_partitioned_unless_never(tables: SparkSession) -> None:
    with configured(tables, spark_sparkext_partitioned="auto"):
        assert_partitioned(tables, lambda: joined(tables, "full"), "1")
    with configured(tables, spark_sparkext_partitioned="never"):
        out = assert_like_spark(tables, lambda: joined(tables, "full"))
        assert exchanges_of(out) == [] and pipelines_of(out) == [1]


@pytest.mark.parametrize("key", ["spark.shuffle.push.enabled", "spark.shuffle.useOldFetchProtocol"])
def test_shuffles_that_take_no_files(tables: SparkSession, key: str) -> None:
    with started_with(tables, key, "true"):
        out = joined(tables, "")
        assert exchanges_of(out) == [] and pipelines_of(out) == [1]
        with configured(tables, spark_sparkext_mode="auto", spark_sparkext_buildSide_maxBytes="1k"):
            out = tables.sql("SELECT * FROM l JOIN r ON k = rk")
            assert exchanges_of(out) == []


def test_groups_above(tables: SparkSession) -> None:
    query = f"SELECT {HINT} x, count(*), sum(b), max(y) FROM l LEFT JOIN r ON k = rk GROUP BY x"
    out = assert_partitioned(tables, lambda: tables.sql(query), "1")
    assert "groups=" in plan_of(out)


def test_first_rows_and_limits(tables: SparkSession) -> None:
    query = f"SELECT {HINT} a, b FROM l JOIN r ON k = rk ORDER BY a DESC, b LIMIT 7"
    assert_partitioned(tables, lambda: tables.sql(query), "1")
    assert len(joined(tables, "").limit(3).collect()) == 3


def test_two_partitioned_joins_in_one_query(tables: SparkSession) -> None:
    both = lambda: joined(tables, "").union(joined(tables, "left anti").selectExpr("*", "0", "0", "''"))  # noqa: E731
    assert_partitioned(tables, both, "1", "1")


def test_a_plan_runs_twice(tables: SparkSession) -> None:
    """The second run reads the map outputs of the first."""
    out = joined(tables, "")
    assert rows_of(out) == rows_of(out)


def test_an_error_of_a_condition_is_sparks(tables: SparkSession) -> None:
    out = joined(tables, "", "k = rk AND 10 / (b - 7) > a")
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        out.collect()


def shuffle_files(spark: SparkSession) -> set[Path]:
    """Return the map output files."""
    return {path for folder in local_folders(spark) for path in folder.rglob("shuffle_*.data")}


def local_folders(spark: SparkSession) -> list[Path]:
    told = spark.sparkContext.parallelize([0], 1).map(lambda _: os.environ["SPARK_LOCAL_DIRS"]).first()
    return [Path(folder) for folder in told.split(",")]


def test_map_outputs_are_this_users_alone(tables: SparkSession) -> None:
    """They are shuffle files, for which Spark itself would follow the umask."""
    before, umask = shuffle_files(tables), os.umask(0)
    try:
        out = joined(tables, "")
        assert out.collect() and exchanges_of(out)
    finally:
        os.umask(umask)
    written = shuffle_files(tables) - before
    assert len(written) > 1 and {path.stat().st_mode & 0o777 for path in written} == {0o600}


def test_files_go_with_the_query(tables: SparkSession) -> None:
    before = shuffle_files(tables)
    out = joined(tables, "")
    out.collect()
    assert shuffle_files(tables) - before
    del out
    for _ in range(60):
        gc.collect()
        tables._jvm.System.gc()
        if not shuffle_files(tables) - before:
            break
        time.sleep(0.5)
    left = shuffle_files(tables) - before
    assert not left, left
    assert not leftovers(tables)


def leftovers(spark: SparkSession) -> list[Path]:
    """Return the files that give workers the paths to write to, and unfinished map outputs."""
    found = [(*folder.rglob("*.target"), *folder.rglob("shuffle_*.data.*")) for folder in local_folders(spark)]
    return [path for paths in found for path in paths]


def test_nothing_is_left_of_a_query_that_fails(tables: SparkSession) -> None:
    rows = "(SELECT *, 1 / (a - 5000) AS z FROM l)"
    with configured(tables, spark_sql_ansi_enabled="true"), pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        joined(tables, "", left=rows).collect()
    assert not leftovers(tables)


def test_nested_columns_travel(tables: SparkSession) -> None:
    rows = "(SELECT k, array(a, null, b0) AS many, named_struct('u', x, 'v', a) AS one, map(x, a) AS m"
    rows += " FROM (SELECT *, a % 3 AS b0 FROM l WHERE x <> ''))"
    query = f"SELECT {HINT} r.*, many, one, map_entries(m) FROM {rows} l FULL JOIN r ON k = rk"
    assert_partitioned(tables, lambda: tables.sql(query), "1")


def test_what_cannot_be_partitioned_is_said(tables: SparkSession) -> None:
    settings = {"spark_sparkext_mode": "auto", "spark_sparkext_buildSide_maxBytes": "1k"}
    with configured(tables, **settings, spark_sparkext_partitioned="never"):
        out = tables.sql("SELECT * FROM l JOIN r ON a < b")
        assert_declined(out, "the build side takes")
        assert any("partitioned is never" in told for told in reasons_of(out)), reasons_of(out)
