"""Scans that workers run themselves: the rows equal those of Spark's reader, or the plan has a reason for Spark's."""

from __future__ import annotations

import datetime as dt
import functools
import os
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkext import pipelined_join, report, scan_parquet
from sparkext.errors import InvalidScanError
from tests.extension.private_files import open_to_others
from tests.support.planned_joins import assert_like_spark, assert_pipelined, plan_of, scans_of
from tests.support.rows import rows_of
from tests.support.sessions import configured

ROWS = 300


def facts(spark: SparkSession) -> DataFrame:
    """Return every type that a fused scan reads, with nulls, and values that reveal a wrong interpretation."""
    n = F.col("id")

    def some(column: Any, name: str, every: int) -> Any:
        return F.when(n % every != 1, column).alias(name)

    return spark.range(ROWS).select(
        "id",
        some(n % 40, "k", 11),
        some((n % 7).cast("int"), "small", 5),
        some((n % 200 - 100).cast("byte"), "tiny", 6),
        some((n * 200 - 30000).cast("short"), "short", 7),
        some(n / 3, "f8", 4),
        some((n / 7).cast("float"), "f4", 4),
        some(n % 2 == 0, "flag", 3),
        some(F.concat(F.lit("wörter "), n % 50), "s", 8),
        some(F.encode(F.concat(F.lit("b"), n % 50), "utf-8"), "bin", 9),
        some((n - 150).cast("decimal(9,2)") / 100, "d9", 5).cast("decimal(9,2)").alias("d9"),
        some((n * 1_000_003).cast("decimal(18,4)"), "d18", 5),
        some((n * 1_000_003).cast("decimal(30,6)"), "d30", 5),
        some(F.date_add(F.lit(dt.date(1950, 1, 1)), (n * 97).cast("int")), "day", 6),
        some(F.timestamp_seconds(n * 9_999_991 - 900_000_000), "at", 6),
        some(F.timestamp_seconds(n * 9_999_991 - 900_000_000).cast("timestamp_ntz"), "local", 6),
    )


DIMS = 60


def dims(spark: SparkSession) -> DataFrame:
    return spark.range(DIMS).select(
        (F.col("id") % 45).alias("dk"), F.concat(F.lit("n"), "id").alias("name"), (F.col("id") % 5).alias("class")
    )


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("scans") / "#1? 100%25 ü"
    facts(spark).repartition(2).write.parquet(str(folder / "facts"))
    dims(spark).coalesce(1).write.parquet(str(folder / "dims"))
    yield folder


def joined(
    spark: SparkSession, probe: DataFrame, folder: Path, how: str = "inner", condition: str = "k = dk"
) -> DataFrame:
    build = spark.read.parquet(str(folder / "dims"))
    return probe.join(build.hint("pipelined_join"), F.expr(condition), how)


def assert_fused(spark: SparkSession, query: Callable[[], DataFrame], builds: int = 1) -> DataFrame:
    """Assert that workers read both sides, and that the rows equal Spark's."""
    df = assert_like_spark(spark, query)
    assert [(fused, probe) for fused, probe, _ in scans_of(df)] == [(builds, True)], plan_of(df)
    return df


@pytest.mark.parametrize(
    ("how", "stored", "legacy"),
    [
        ("inner", "INT96", True),
        ("left", "TIMESTAMP_MICROS", False),
        ("left_semi", "TIMESTAMP_MILLIS", True),
        ("left_anti", "INT96", False),
    ],
)
def test_every_type(spark: SparkSession, folder: Path, tmp_path: Path, how: str, stored: str, legacy: bool) -> None:
    path = str(tmp_path / "typed")
    with configured(
        spark, spark_sql_parquet_outputTimestampType=stored, spark_sql_parquet_writeLegacyFormat=str(legacy).lower()
    ):
        facts(spark).repartition(3).write.parquet(path)
    assert_fused(spark, lambda: joined(spark, spark.read.parquet(path), folder, how))
    # The opposite direction: every type as payload of the build side.
    typed = spark.read.parquet(path)
    small = spark.read.parquet(str(folder / "dims"))
    assert_fused(spark, lambda: small.join(typed.hint("pipelined_join"), F.expr("k = dk"), how))


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_full_join_shuffles_its_probe_side(spark: SparkSession, folder: Path, adaptive: bool) -> None:
    """Workers would read it in splits, and no task would own the unmatched build rows.

    This holds without a partitioning exchange. With one, workers read the rows that the exchange sends.
    """
    with configured(spark, spark_sparkext_partitioned="never", spark_sql_adaptive_enabled=str(adaptive).lower()):
        out = assert_like_spark(
            spark, lambda: joined(spark, spark.read.parquet(str(folder / "facts")).where("k < 20"), folder, "full")
        )
    assert_pipelined(out, 1)
    assert out.where("k IS NULL AND dk IS NOT NULL").count() > 20
    ((_, fused, said),) = scans_of(out)
    assert not fused and said.startswith("a full outer join shuffles the rows"), plan_of(out)


@pytest.mark.parametrize(
    "key", ["small", "tiny", "short", "f8", "f4", "flag", "s", "bin", "d9", "d30", "day", "at", "local"]
)
def test_keys_of_every_type(spark: SparkSession, folder: Path, key: str) -> None:
    probe = spark.read.parquet(str(folder / "facts")).where("id < 60").select("id", key)
    build = (
        spark.read.parquet(str(folder / "facts"))
        .where("id >= 30 AND id < 90")
        .select(F.col("id").alias("other"), F.col(key).alias("x"))
    )
    assert_fused(spark, lambda: probe.join(build.hint("pipelined_join"), F.col(key) == F.col("x")))


@pytest.mark.parametrize("bytes_", [2_000, 20_000, 1_000_000])
def test_every_split_is_read_once(spark: SparkSession, folder: Path, tmp_path: Path, bytes_: int) -> None:
    table = facts(spark).select("id", "k", "s").toArrow()
    for number, rows in enumerate((1, 7, 100, 1000)):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=rows)
    with configured(spark, spark_sql_files_maxPartitionBytes=bytes_, spark_sql_files_openCostInBytes=0):
        df = assert_fused(spark, lambda: joined(spark, spark.read.parquet(str(tmp_path)), folder))
        tasks = len(report(df).tasks)
    assert tasks > 10 if bytes_ == 2_000 else tasks >= 1


def test_chains_and_what_lies_between(spark: SparkSession, folder: Path) -> None:
    for name in ("facts", "dims"):
        spark.read.parquet(str(folder / name)).createOrReplaceTempView(f"scan_{name}")
    text = """
        SELECT /*+ PIPELINED_JOIN(b, c) */ a.id + c.class AS sum, b.name, c.name AS other
        FROM (SELECT id, k AS key, small FROM scan_facts WHERE flag AND s LIKE 'wörter 1%') a
        JOIN (SELECT dk AS d, name FROM scan_dims WHERE class <> 3) b ON key = d
        LEFT JOIN scan_dims c ON small = c.class AND c.name < b.name
    """
    df = assert_like_spark(spark, lambda: spark.sql(text))
    assert_pipelined(df, 2)
    ((builds, probe, said),) = scans_of(df)
    assert (builds, probe) == (2, True), said
    # A key expression that may fail is computed at its place, which splits the chain: the upper part has no scan.
    parted = text.replace("small = c.class", "a.id + 1 = c.dk")
    upper, lower = scans_of(assert_like_spark(spark, lambda: spark.sql(parted)))
    assert upper[:2] == (1, False) and upper[2].startswith("not a scan of files: PipelinedJoin"), upper
    assert lower[:2] == (1, True)
    for view in ("scan_facts", "scan_dims"):
        spark.catalog.dropTempView(view)


# --- filters ---

CONDITIONS = [
    "k < 20",
    "k >= 20 OR small = 3",
    "NOT (k = 5)",
    "k IN (1, 2, 3, NULL)",
    "k NOT IN (1, 2, 3)",
    "small IN (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13)",
    "s IS NULL",
    "s LIKE 'w%'",
    "s LIKE '%5'",
    "s LIKE '%ter%'",
    "s LIKE 'w%r%4'",
    "s NOT LIKE '%r%1%'",
    "s > 'wörter 3'",
    "d9 BETWEEN -0.5 AND 0.25",
    "day < DATE '1990-01-01'",
    "at > TIMESTAMP '1975-06-01 12:00:00'",
    "local <= TIMESTAMP_NTZ '1980-01-01 00:00:00'",
    "flag = true",
    "flag",
    "NOT flag OR k IS NULL",
    "k <=> NULL",
    "d30 > 1000",
    "k = small",
    "tiny < short",
    "k % 2 = 1",
    "f8 > 3",
    "s LIKE 'w_r%'",
]
READ_BY_SPARK = {
    "bin = X'6231'": "a filter that only Spark evaluates: X'6231'",
    "NOT (k IN (1, 2, 3, NULL))": None,
    "false": None,
}
"""Each other condition, with the reason in the plan. None: Spark's optimiser leaves no rows, so there is no join."""


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_are_sparks(spark: SparkSession, folder: Path, condition: str) -> None:
    assert_fused(
        spark, lambda: joined(spark, spark.read.parquet(str(folder / "facts")).where(condition), folder, "left")
    )
    build = spark.read.parquet(str(folder / "facts")).where(condition)
    small = spark.read.parquet(str(folder / "dims"))
    assert_fused(spark, lambda: small.join(build.hint("pipelined_join"), F.expr("dk = k"), "left"))


@pytest.mark.parametrize("condition", READ_BY_SPARK)
def test_filters_that_spark_evaluates(spark: SparkSession, folder: Path, condition: str) -> None:
    reason = READ_BY_SPARK[condition]
    df = assert_like_spark(
        spark, lambda: joined(spark, spark.read.parquet(str(folder / "facts")).where(condition), folder, "left")
    )
    scans = [] if reason is None else [(1, False, f"{reason})")]
    assert scans_of(df) == scans, plan_of(df)
    build = spark.read.parquet(str(folder / "facts")).where(condition)
    small = spark.read.parquet(str(folder / "dims"))
    assert_like_spark(spark, lambda: small.join(build.hint("pipelined_join"), F.expr("dk = k"), "left"))


def conditions() -> st.SearchStrategy[str]:
    column = st.sampled_from(["k", "id", "small", "tiny", "short"])
    number = st.one_of(st.integers(-10, 60).map(str), st.just("NULL"))
    comparison = st.tuples(column, st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]), number).map(" ".join)
    among = st.tuples(column, st.sampled_from(["IN", "NOT IN"]), st.lists(number, min_size=1, max_size=4)).map(
        lambda parts: f"{parts[0]} {parts[1]} ({', '.join(parts[2])})"
    )
    word = st.tuples(
        st.sampled_from(["LIKE", "NOT LIKE"]), st.sampled_from(["w%", "%1", "%r 2%", "%", "w%3", "wörter 7"])
    ).map(lambda parts: f"s {parts[0]} '{parts[1]}'")
    null = st.tuples(st.sampled_from(["k", "s", "flag"]), st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join)
    leaf = st.one_of(comparison, among, word, null, st.just("flag"))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.map(lambda one: f"NOT ({one})"),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
                lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
            ),
        ),
        max_leaves=5,
    )


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(condition=conditions())
def test_any_filter_gives_sparks_rows(spark: SparkSession, folder: Path, condition: str) -> None:
    probe = spark.read.parquet(str(folder / "facts")).where(condition)
    assert_like_spark(spark, lambda: joined(spark, probe.select("id", "k", "s"), folder))


# --- tables that change shape from file to file ---


def test_columns_come_and_go_between_files(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "a": ["x", "y"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [2.5], "k": [3]}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"extra": [[1]], "a": ["z"], "K": [4]}), tmp_path / "3.parquet")
    pq.write_table(pa.table({"k": pa.array([], pa.int64())}), tmp_path / "4.parquet")
    for merged in ("k bigint, a string, b double", "b double, missing date, k bigint", "K bigint, A string"):
        probe = spark.read.schema(merged).parquet(str(tmp_path))
        assert_fused(spark, lambda probe=probe: joined(spark, probe, folder, "left"))
    with configured(spark, spark_sql_caseSensitive="true"):
        probe = spark.read.schema("k bigint, a string").parquet(str(tmp_path))
        assert_fused(spark, lambda: joined(spark, probe, folder, "left"))


def test_partition_columns(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "parts")
    parts = facts(spark).select(
        "id", "k", F.col("day").alias("p_day"), F.col("s").alias("p_s"), (F.col("id") % 3).alias("p_n")
    )
    parts.where("id < 30").write.partitionBy("p_n", "p_s", "p_day").parquet(path)
    read = spark.read.parquet(path)
    assert_fused(spark, lambda: joined(spark, read, folder, "left"))
    assert_fused(spark, lambda: joined(spark, read.where("p_n = 1 AND k > 3 AND p_s LIKE '%1%'"), folder, "left"))
    assert_fused(spark, lambda: joined(spark, read.where("p_s IS NULL OR p_n > k"), folder, "left", "p_n = dk"))


def test_a_table_in_buckets_keeps_them(spark: SparkSession, folder: Path) -> None:
    facts(spark).select("id", "k", "s").write.bucketBy(3, "k").saveAsTable("scan_buckets")
    try:
        query = lambda: joined(spark, spark.table("scan_buckets"), folder).groupBy("k").agg(F.count("*"), F.max("name"))  # noqa: E731
        df = assert_fused(spark, query)
        assert "Exchange" not in plan_of(df)
    finally:
        spark.sql("DROP TABLE scan_buckets")


def test_no_files_no_rows(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    empty = spark.read.schema("k bigint, v string").parquet(str(tmp_path))
    assert_fused(spark, lambda: joined(spark, empty, folder, "left"))
    build = empty.hint("pipelined_join")
    small = spark.read.parquet(str(folder / "dims"))
    assert_fused(spark, lambda: small.join(build, F.expr("dk = k"), "left"))


# --- tables that Spark reads itself ---


@pytest.mark.parametrize("scheme", ["gs", "abfss", "hdfs", "viewfs"])
def test_files_of_other_stores(spark: SparkSession, folder: Path, scheme: str) -> None:
    """Spark's settings map this store's paths to local files."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    settings = {
        f"fs.{scheme}.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.viewfs.mounttable.shelf.link./data": folder.as_uri(),
    }
    for key, value in settings.items():
        hadoop.set(key, value)
    try:
        read = spark.read.parquet(f"{scheme}://shelf/data/facts")
        df = assert_like_spark(spark, lambda: joined(spark, read, folder))
        ((_, fused, told),) = scans_of(df)
        assert not fused and f"files that workers do not read: {scheme}:" in told, plan_of(df)
    finally:
        for key in settings:
            hadoop.unset(key)


def unsigned(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "v": pa.array([1, 2], pa.uint32())}), path / "f.parquet")


def nanoseconds_beside(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "v": pa.array([b"ab", b"cd"], pa.binary(2))}), path / "f.parquet")


def narrower(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "v": pa.array([1, 2], pa.int64())}), path / "1.parquet")
    pq.write_table(pa.table({"k": [1, 2], "v": pa.array([1, 2], pa.int32())}), path / "2.parquet")


def twice(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "v": [1, 2], "V": [3, 4]}), path / "f.parquet")


def nested(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "v": [[1], []]}), path / "f.parquet")


def plain(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "v": [1, 2]}), path / "f.parquet")


def ancient(path: Path) -> None:
    table = pa.table({"k": [1, 2], "v": [dt.date(1500, 1, 1), dt.date(2000, 1, 1)]})
    keys = {"org.apache.spark.version": "2.4.8", "org.apache.spark.legacyDateTime": ""}
    pq.write_table(table.replace_schema_metadata(keys), path / "f.parquet")


def other_letters(path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2], "STRAßE": [1, 2], "Ä": [3, 4]}), path / "f.parquet")


DECLINED: dict[str, tuple[Callable[[Path], None], str, dict[str, str], str]] = {
    "unsigned integers": (unsigned, "k bigint, v bigint", {}, "column v is stored as"),
    "bytes of fixed length": (nanoseconds_beside, "k bigint, v binary", {}, "column v is stored as"),
    "an integer that widens": (narrower, "k bigint, v bigint", {}, "column v is of type int"),
    "a name twice": (twice, "k bigint, v bigint", {"spark_sql_caseSensitive": "true"}, ""),
    "a name spelled in a different case": (
        other_letters,
        "k bigint, `ä` bigint",
        {},
        "has column ä spelled in a different case",
    ),
    "nested columns": (nested, "k bigint, v array<bigint>", {}, "column v of type array<bigint>"),
    "another calendar": (ancient, "k bigint, v date", {}, "column v uses another calendar"),
    "corrupt files ignored": (
        plain,
        "k bigint, v bigint",
        {"spark_sql_files_ignoreCorruptFiles": "true"},
        "corrupt or",
    ),
    "missing files ignored": (
        plain,
        "k bigint, v bigint",
        {"spark_sql_files_ignoreMissingFiles": "true"},
        "corrupt or",
    ),
    "switched off": (
        plain,
        "k bigint, v bigint",
        {"spark_sparkext_scan_fused": "false"},
        "disabled by spark.sparkext.scan.fused",
    ),
    "no field ids": (
        plain,
        "k bigint, v bigint",
        {"spark_sql_parquet_fieldId_read_enabled": "true"},
        "",
    ),
}


@pytest.mark.parametrize("case", DECLINED)
def test_what_workers_do_not_read_as_spark_does(spark: SparkSession, folder: Path, tmp_path: Path, case: str) -> None:
    write, schema, conf, reason = DECLINED[case]
    write(tmp_path)
    with configured(spark, **conf):
        df = assert_like_spark(
            spark, lambda: joined(spark, spark.read.schema(schema).parquet(str(tmp_path)), folder, "left")
        )
        ((_, fused, said),) = scans_of(df)
    assert fused is (reason == "")
    assert reason in said


def numbered(name: str, number: int | None) -> T.StructField:
    """Return a long column with this Parquet field id."""
    return T.StructField(name, T.LongType(), True, {} if number is None else {"parquet.field.id": number})


def test_columns_are_matched_by_field_ids(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "numbered")
    written = T.StructType([numbered("a", 1), numbered("b", 2), numbered("c", 3), numbered("d", None)])
    with configured(spark, spark_sql_parquet_fieldId_write_enabled="true"):
        spark.createDataFrame([(n, n * 10, n * 100, n * 1000) for n in range(60)], written).write.parquet(path)
    # `c` is the file's `b`, `x` is none of its columns; `d` has no id, and is found by its name.
    read = T.StructType([numbered("k", 1), numbered("c", 2), numbered("x", 9), numbered("d", None)])

    def query() -> DataFrame:
        return joined(spark, spark.read.schema(read).parquet(path).filter("c > 100 or d < 5000"), folder, "left")

    # Spark applies a pushed-down filter to the file's column of that name instead of that id, and loses rows.
    ids = {"spark_sql_parquet_fieldId_read_enabled": "true", "spark_sql_parquet_filterPushdown": "false"}
    with configured(spark, **ids):
        df = assert_fused(spark, query)
        assert {tuple(row) for row in df.select("k", "c", "x", "d").collect()} >= {(20, 200, None, 20000)}
    plain_path = tmp_path / "plain"
    plain_path.mkdir()
    plain(plain_path)
    path = str(plain_path)
    with configured(spark, **ids, spark_sql_parquet_fieldId_read_ignoreMissing="true"):
        assert "has no field ids" in scans_of(assert_like_spark(spark, lambda: query().select("k", "c")))[0][2]


def test_sources_that_are_no_parquet_files(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    facts(spark).select("id", "k").write.orc(str(tmp_path / "orc"))
    reads = {
        "not a Parquet scan": spark.read.orc(str(tmp_path / "orc")),
        "not a scan of files": spark.range(20).select((F.col("id") * 2).alias("k")),
        "a column that Spark computes": spark.read.parquet(str(folder / "facts")).select((F.col("k") + 1).alias("k")),
        "a filter that only Spark evaluates: initcap": spark.read.parquet(str(folder / "facts")).where(
            "initcap(s) < 'm'"
        ),
        "a filter that only Spark evaluates: (1": spark.read.parquet(str(folder / "facts")).where(
            "1 / nullif(f8, 0) > 3"
        ),
        "a column that Spark computes: knownnotnull": spark.read.parquet(str(folder / "facts")).select(
            "k", "_metadata.file_size"
        ),
    }
    for reason, probe in reads.items():
        df = assert_like_spark(spark, lambda probe=probe: joined(spark, probe, folder))
        ((builds, fused, said),) = scans_of(df)
        assert builds == 1 and not fused and said.startswith(reason), (reason, said)


# --- files that change, vanish or break ---


def test_a_cached_index_is_found_again_until_a_file_changes(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    build = tmp_path / "build"
    shutil.copytree(folder / "dims", build)
    probe = spark.read.parquet(str(folder / "facts"))

    def run() -> tuple[bool | None, int]:
        df = probe.join(spark.read.parquet(str(build)).hint("pipelined_join"), F.expr("k = dk"))
        rows = sum(rows_of(df).values())
        return report(df).joins[0].index_reused, rows

    first, second = run(), run()
    assert (first[0], second[0]) == (False, True)
    assert first[1] == second[1] > 0
    pq.write_table(pa.table({"dk": [1] * 5, "name": ["new"] * 5, "class": [0] * 5}), build / "added.parquet")
    added = run()
    assert added[0] is False and added[1] > second[1]
    (build / "added.parquet").unlink()
    assert run() == second  # the files, and so the cached index, are those of the first run again
    (part,) = build.glob("part-*.parquet")
    os.utime(part, ns=(0, 0))
    assert run() == first


def overwritten(path: Path, table: pa.Table) -> None:
    """Write a table of the same size over a file, keeping its inode and modification time, as `cp -p` does."""
    before = path.stat()
    new = path.with_name(".new")
    pq.write_table(table, new)
    path.write_bytes(new.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def test_files_replaced_with_their_times_kept_are_read_anew(spark: SparkSession, tmp_path: Path) -> None:
    """The probe side's cached footer would rule out all of its rows, and the build side's index is cached."""
    probe, build = tmp_path / "probe.parquet", tmp_path / "build.parquet"
    pq.write_table(pa.table({"k": [1, 2]}), probe)
    pq.write_table(pa.table({"dk": [1, 2]}), build)

    def query() -> DataFrame:
        left, right = spark.read.parquet(str(probe)), spark.read.parquet(str(build))
        return left.join(right.hint("pipelined_join"), F.expr("k = dk"))

    assert assert_fused(spark, query).count() == 2
    overwritten(probe, pa.table({"k": [7, 8]}))
    assert assert_fused(spark, query).count() == 0
    overwritten(build, pa.table({"dk": [8, 9]}))
    out = assert_fused(spark, query)
    assert [tuple(row) for row in out.collect()] == [(8, 8)]


def test_a_footer_replaced_with_its_times_kept_is_looked_at_anew(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"k": [1, 2], "v": [dt.date(1500, 1, 1), dt.date(2000, 1, 1)]})

    def written_by(version: str) -> pa.Table:
        return table.replace_schema_metadata({"org.apache.spark.version": version})

    def query() -> DataFrame:
        return joined(spark, spark.read.parquet(str(path)), folder, "left")

    pq.write_table(written_by("3.4.8"), path)
    planned = assert_fused(spark, query)
    overwritten(path, written_by("2.4.8"))
    ((_, fused, said),) = scans_of(assert_like_spark(spark, query))
    assert not fused and "column v uses another calendar" in said
    # A query that is already planned is not planned again.
    with pytest.raises((PySparkException, Py4JJavaError), match="column v may use another calendar"):
        planned.collect()


def test_what_lies_on_disks_is_this_users_alone(spark: SparkSession, folder: Path) -> None:
    """While a query runs: files that the driver collects, in sequential or in any order, and files of workers."""
    probe = spark.read.parquet(str(folder / "facts"))
    rows = spark.range(0, 40, 1, 4).selectExpr("id AS rk", "concat('r', id) AS v")
    read = spark.read.parquet(str(folder / "dims"))
    near = (
        probe.where("id < 20")
        .select("id")
        ._joinAsOf(rows.hint("pipelined_join"), leftAsOfColumn="id", rightAsOfColumn="rk")
    )
    out = probe.join(rows.hint("pipelined_join"), F.expr("k = rk")).join(read.hint("pipelined_join"), F.expr("k = dk"))
    assert out.count() > 0 and near.count() == 20
    context = spark.sparkContext
    place = context._jvm.org.apache.spark.util.Utils.getLocalDir(context._jsc.sc().conf())
    files, wrong = open_to_others(Path(place))
    assert files >= 6 and not wrong, wrong


def test_build_files_that_are_replaced_between_two_actions(spark: SparkSession, tmp_path: Path) -> None:
    """Replaced files give the new rows. Deleted files give an error, although Spark's broadcast would keep the rows."""
    file = tmp_path / "dims" / "part.parquet"
    file.parent.mkdir()
    for rows in (100, 50):
        pq.write_table(pa.table({"k": range(rows), "v": range(rows)}), file)
        if rows == 100:
            dims = spark.read.parquet(str(file.parent))
            out = spark.range(80).withColumnRenamed("id", "k").join(dims.hint("pipelined_join"), "k")
            assert_pipelined(out, 1)
        assert len(out.collect()) == min(80, rows)
    file.unlink()
    with pytest.raises((PySparkException, Py4JJavaError), match=r"FAILED_READ_FILE\.FILE_NOT_EXIST"):
        out.collect()


def test_queries_with_other_columns_or_filters_have_indexes_of_their_own(spark: SparkSession, folder: Path) -> None:
    probe = spark.read.parquet(str(folder / "facts")).select("id", "k")
    build = spark.read.parquet(str(folder / "dims"))
    for narrow in (
        build.where("class = 2"),
        build.where("class = 3"),
        build.select("dk"),
        build.where("class = 3").select("dk"),
    ):
        assert_fused(spark, lambda narrow=narrow: probe.join(narrow.hint("pipelined_join"), F.expr("k = dk")))


def test_a_small_cache_makes_room(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    builds = []
    for number in range(3):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"dk": list(range(5000)), "v": [number] * 5000}), path)
        builds.append(spark.read.parquet(str(path)))
    probe = spark.read.parquet(str(folder / "facts")).select("id", "k")

    def reused(number: int) -> bool | None:
        df = probe.join(builds[number].hint("pipelined_join"), F.expr("k = dk"))
        assert {row.v for row in df.collect()} == {number}
        return report(df).joins[0].index_reused

    with configured(spark, spark_sparkext_indexCache_maxBytes=250_000):
        assert [reused(number) for number in (0, 1, 0, 2, 0, 1)] == [False, False, True, False, True, False]


def test_a_query_keeps_all_of_its_build_sides(spark: SparkSession, folder: Path) -> None:
    """A running query's entries stay even if the cache is smaller: tasks would evict and rebuild them in turn."""
    build = spark.read.parquet(str(folder / "dims"))
    probe = spark.read.parquet(str(folder / "facts")).select("id", "k", "small").repartition(8)
    one, two = build.select("dk", "name"), build.select(F.col("dk").alias("ek"), F.col("class").alias("other"))

    def query() -> DataFrame:
        return probe.join(one.hint("pipelined_join"), F.expr("k = dk")).join(
            two.hint("pipelined_join"), F.expr("id = ek"), "left"
        )

    with configured(spark, spark_sparkext_indexCache_maxBytes=0):
        df = assert_like_spark(spark, query)
        assert_pipelined(df, 2)
        assert sum(not task.indexes[0]["reused"] for task in report(df).tasks) <= 2  # two tasks run at the same time


def test_a_file_asked_for_twice_is_read_twice(spark: SparkSession, folder: Path) -> None:
    twice = [str(folder / "dims"), str(folder / "dims")]
    probe = spark.read.parquet(str(folder / "facts"))
    df = assert_fused(spark, lambda: probe.join(spark.read.parquet(*twice).hint("pipelined_join"), F.expr("k = dk")))
    assert report(df).joins[0].build_rows == 2 * DIMS
    assert_fused(spark, lambda: joined(spark, spark.read.parquet(*[str(folder / "facts")] * 2), folder))


def test_long_and_deep_filters(spark: SparkSession, folder: Path) -> None:
    probe = spark.read.parquet(str(folder / "facts"))
    long = functools.reduce(Column.__or__, [F.col("id") + 0 == n for n in range(100)])
    anyone = functools.reduce(Column.__or__, [(F.col("id") == n) & (F.col("k") != n + 1) for n in range(100)])
    deep = functools.reduce(lambda inner, n: ~(inner & (F.col("id") != n)), range(60), F.col("id") > 5)
    assert_like_spark(spark, lambda: joined(spark, probe.where(long), folder))
    assert_fused(spark, lambda: joined(spark, probe.where(anyone), folder))
    assert_like_spark(spark, lambda: joined(spark, probe.where(deep), folder))


@pytest.mark.parametrize("side", ["probe", "build"])
def test_a_file_that_is_gone_is_an_error_as_sparks(
    spark: SparkSession, folder: Path, tmp_path: Path, side: str
) -> None:
    shutil.copytree(folder / "facts", tmp_path / "facts")
    shutil.copytree(folder / "dims", tmp_path / "dims")

    def query() -> DataFrame:
        return joined(spark, spark.read.parquet(str(tmp_path / "facts")), tmp_path)

    ours = query()
    ours.collect()
    with configured(spark, spark_sparkext_mode="off"):
        sparks = query()
        sparks._jdf.queryExecution().executedPlan()
    for part in (tmp_path / {"probe": "facts", "build": "dims"}[side]).glob("part-*.parquet"):
        part.unlink()
    with pytest.raises((PySparkException, Py4JJavaError)) as expected:
        sparks.collect()
    with pytest.raises((PySparkException, Py4JJavaError)) as told:
        ours.collect()
    assert "FAILED_READ_FILE.FILE_NOT_EXIST" in str(expected.value)
    assert "FAILED_READ_FILE.FILE_NOT_EXIST" in str(told.value)


def test_a_damaged_file_is_an_error_that_names_it(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": list(range(50_000))}), path, compression="zstd", use_dictionary=False)
    df = joined(spark, spark.read.parquet(str(path)), folder)
    plan_of(df)
    content = bytearray(path.read_bytes())
    content[100:20_000] = bytes(19_900)
    path.write_bytes(content)
    with pytest.raises((PySparkException, Py4JJavaError), match=r"(?s)FAILED_READ_FILE.*f\.parquet") as told:
        df.collect()
    assert "FAILED_READ_FILE" in str(told.value)


def test_the_report_tells_what_was_read(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"k": list(range(1000)), "v": list(range(1000))}), tmp_path / "f.parquet", row_group_size=100
    )
    df = joined(spark, spark.read.parquet(str(tmp_path)), folder)
    assert sum(rows_of(df).values()) == DIMS
    told = report(df)
    assert told.scan is not None
    # Build keys range from 0 to 44, within the first row group.
    assert (told.scan.row_groups, told.scan.row_groups_pruned, told.scan.rows) == (1, 9, 100)
    assert told.scan.bytes > 0
    assert "skipped by statistics" in str(told)
    assert told.joins[0].rows_in == 100


def test_decimals_keep_their_scale(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    values = [Decimal("1.10"), Decimal("-0.01"), None, Decimal("99999.99")]
    pq.write_table(pa.table({"k": [1, 2, 3, 4], "v": pa.array(values, pa.decimal128(7, 2))}), tmp_path / "f.parquet")
    assert_fused(spark, lambda: joined(spark, spark.read.parquet(str(tmp_path)), folder, "left"))


@pytest.mark.parametrize("order", ["ascending", "shuffled", "one row group"])
def test_probe_rows_in_the_order_of_the_key_are_merged(spark: SparkSession, tmp_path: Path, order: str) -> None:
    """Two row groups suffice to detect the order. Keys are sparse, because dense ones are addressed directly."""
    keys = [number * 2**40 for number in range(2000)]
    probe = [keys[number * 7 % 2000] for number in range(2000)] if order == "shuffled" else keys
    table = pa.table({"k": probe, "v": list(range(2000))})
    pq.write_table(table, tmp_path / "probe.parquet", row_group_size=500 if order != "one row group" else 2000)
    pq.write_table(pa.table({"b": keys[::3], "w": keys[::3]}), tmp_path / "build.parquet")

    def query() -> DataFrame:
        probe, build = (spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("probe", "build"))
        return probe.filter("v > 3").join(build.hint("pipelined_join"), F.col("k") == F.col("b"), "left")

    out = assert_like_spark(spark, query)
    index = report(out).joins[0]
    assert index.index == ("ordered" if order == "ascending" else "hash"), index


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("condition", ["true", "k < 3", "k < -1"])
def test_rows_without_columns_are_counted(spark: SparkSession, folder: Path, how: str, condition: str) -> None:
    """The plan requires no column. PySpark would create an object for each row without columns, so a column is sent."""
    f, d = (spark.read.parquet(str(folder / name)) for name in ("facts", "dims"))

    def query() -> DataFrame:
        return f.where(condition).join(d.hint("pipelined_join"), f.k == d.dk, how).agg(F.count("*"))

    out = assert_like_spark(spark, query)
    assert_pipelined(out, 1)
    [group] = [join for join in report(out).joins if join.index is None]
    assert group.operator == "group" and group.rows_in == out.collect()[0][0]


def test_scan_parquet_is_planned_here(spark: SparkSession, folder: Path) -> None:
    """The rows equal those of a session without the extension, with a plan that workers read the files for."""
    tests = [[("k", "<", 30), ("s", "is not null")], [("day", "=", dt.date(1960, 1, 1)), ("d9", "!=", Decimal("1.5"))]]
    names = ["id", "K", "s"]
    moment = dt.datetime(1975, 5, 1, 12, 30)
    local = scan_parquet(
        spark, folder / "facts", columns=["id"], filters=[("local", "in", [moment]), ("local", ">", moment)]
    )
    assert local.count() == 0
    later = scan_parquet(spark, folder / "facts", columns=["id"], filters=[("local", ">=", moment)])
    assert rows_of(later) == rows_of(
        spark.read.parquet(str(folder / "facts")).where(f"local >= TIMESTAMP_NTZ'{moment}'").select("id")
    )
    frame = scan_parquet(spark, folder / "facts", columns=names, filters=tests)
    whole = spark.read.parquet(str(folder / "facts"))
    kept = whole.where("k < 30 AND s IS NOT NULL OR day = DATE'1960-01-01' AND d9 != 1.5").select(*names)
    assert frame.columns == names
    assert rows_of(frame) == rows_of(kept)
    build = scan_parquet(spark, str(folder / "dims"), columns=["dk", "name"])
    out = frame.transform(pipelined_join(build, [("K", "dk")]))
    assert_pipelined(out, 1)
    assert "scan=fused" in plan_of(out)
    assert rows_of(out) == rows_of(kept.join(build, build.dk == kept.K))
    with pytest.raises(InvalidScanError, match="'nowhere'"):
        scan_parquet(spark, folder / "facts", columns=["nowhere"])


def test_a_files_own_column_is_no_partition(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """The value in the path takes precedence over a file column of that name, in any case."""
    parts = tmp_path / "facts" / "part=1"
    parts.mkdir(parents=True)
    pq.write_table(pa.table({"k": [1, 2], "PART": [98, 99]}), parts / "file.parquet")
    f, d = spark.read.parquet(str(tmp_path / "facts")), spark.read.parquet(str(folder / "dims"))
    out = assert_fused(spark, lambda: f.where("part < 50").join(d.hint("pipelined_join"), f.part == d.dk))
    assert out.count() == 2 * d.where("dk = 1").count()
