"""Probe rows that are sent to Python as columns: the rows equal Spark's, and the plan shows where columns are sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.support.planned_joins import assert_like_spark, assert_pipelined, mode, plan_of
from tests.support.sessions import configured

ROWS = 300
FIRST = 16_384
"""Rows in the first batch of a task. The second batch has four times as many."""

NUMBERS = ["k", "flag", "tiny", "short", "i4", "i8", "f4", "f8"]


def facts(spark: SparkSession, nulls: str) -> DataFrame:
    """Return every type that is copied as columns. `nulls` is a condition on `id` and the column number `n`."""
    n = F.col("id")
    columns: dict[str, Any] = {
        "k": n % 40,
        "flag": n % 3 == 0,
        "tiny": (n % 200 - 100).cast("byte"),
        "short": (n * 200 - 30_000).cast("short"),
        "i4": (n * 7_000_001 - 1_000_000_000).cast("int"),
        "i8": n * 70_000_000_000_001 - 10_000_000_000_000_000,
        "f4": F.when(n % 9 == 0, F.lit(float("nan"))).otherwise(n / 7).cast("float"),
        "f8": F.when(n % 9 == 1, F.lit(-0.0)).otherwise(n / 3),
        "s": F.concat(F.lit("wörter "), (n % 50).cast("string")),
        "none": F.lit(""),
        "bin": F.encode(F.concat(F.lit("b"), n % 50), "utf-8"),
        "d9": ((n - 150) / 100).cast("decimal(9,2)"),
        "d18": ((n - 150) * 1_000_003).cast("decimal(18,4)"),
        "d38": ((n - 150) * 1_000_003).cast("decimal(38,10)") * F.lit("98765432109876").cast("decimal(14,0)"),
        "day": F.date_add(F.lit(dt.date(1850, 1, 1)), (n * 397).cast("int")),
        "at": F.timestamp_seconds(n * 19_999_991 - 2_900_000_000),
        "local": F.timestamp_seconds(n * 19_999_991 - 2_900_000_000).cast("timestamp_ntz"),
        "span": F.make_dt_interval((n - 150).cast("int"), F.lit(1), F.lit(2), F.lit(3.000004).cast("decimal(18,6)")),
    }
    rate = nulls.format(n="{n}")
    return spark.range(ROWS).select(
        "id",
        *(
            F.when(~F.expr(rate.replace("{n}", str(number))), column).alias(name)
            for number, (name, column) in enumerate(columns.items())
        ),
    )


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("columnar")
    for name, nulls in {"none": "false", "some": "(id + {n}) % 5 = 0", "all": "true"}.items():
        made = facts(spark, nulls).coalesce(1).cache()
        for fmt in ("parquet", "orc"):
            made.write.format(fmt).save(str(folder / fmt / name))
        made.unpersist()
    yield folder


@pytest.fixture(autouse=True)
def from_spark(spark: SparkSession) -> Iterator[None]:
    """Disable the scan by workers. Spark's batches have 37 rows, so that they end within a byte of validity bits."""
    with configured(
        spark,
        spark_sparkext_scan_fused="false",
        spark_sql_orc_columnarReaderBatchSize=37,
        spark_sql_parquet_columnarReaderBatchSize=37,
    ):
        yield


def dims(spark: SparkSession) -> DataFrame:
    return spark.range(60).select(
        (F.col("id") % 45).alias("dk"), F.concat(F.lit("n"), "id").alias("name"), (F.col("id") % 5).alias("class")
    )


def joined(spark: SparkSession, probe: DataFrame, how: str = "left", condition: str = "k = dk") -> DataFrame:
    return probe.join(dims(spark).hint("pipelined_join"), F.expr(condition), how)


def assert_columns(spark: SparkSession, query: Callable[[], DataFrame], joins: int = 1) -> DataFrame:
    """Assert that columns were sent, and that the rows equal Spark's."""
    df = assert_like_spark(spark, query)
    assert_pipelined(df, joins)
    assert "scan=columns from Spark (" in plan_of(df), plan_of(df)
    return df


def assert_rows(spark: SparkSession, query: Callable[[], DataFrame]) -> None:
    df = assert_like_spark(spark, query)
    assert_pipelined(df, 1)
    assert "scan=rows from Spark (" in plan_of(df), plan_of(df)


def digest(df: DataFrame) -> DataFrame:
    """Return a digest of the rows. Collecting many rows would take longer than joining them."""
    return df.agg(F.count("*"), F.sum(F.xxhash64(*df.columns).cast("decimal(38,0)")))


@pytest.mark.reduced("values", reason="four seconds each")
@pytest.mark.parametrize("nulls", ["none", "some", "all"])
@pytest.mark.parametrize("fmt", ["parquet", "orc"])
def test_every_type(spark: SparkSession, folder: Path, fmt: str, nulls: str) -> None:
    path = str(folder / fmt / nulls)
    df = assert_columns(spark, lambda: joined(spark, spark.read.format(fmt).load(path)))
    assert "scan=columns from Spark (disabled by spark.sparkext.scan.fused)" in plan_of(df)
    # A null-safe join on a key of another type.
    key, offheap = {"none": ("s", "false"), "some": ("d38", "true"), "all": ("at", "true")}[nulls]
    with configured(spark, spark_sql_columnVector_offheap_enabled=offheap):
        probe = spark.read.format(fmt).load(path)
        build = probe.select(F.col("id").alias("other"), F.col(key).alias("x")).where("id % 3 = 0")
        on = F.col(key).eqNullSafe(F.col("x"))
        assert_columns(spark, lambda: probe.where("id > 9").join(build.hint("pipelined_join"), on))


@pytest.mark.parametrize(("codec", "nulls"), [("lz4", "all"), ("zstd", "some")])
def test_nothing_is_compressed_on_its_way(spark: SparkSession, folder: Path, codec: str, nulls: str) -> None:
    """pyarrow cannot read Spark's compressed columns that are all null, and workers memory-map build sides."""
    path = str(folder / "parquet" / nulls)
    with configured(spark, spark_sql_execution_arrow_compression_codec=codec):
        other = spark.read.parquet(path).hint("pipelined_join")
        assert_columns(spark, lambda: spark.read.parquet(path).join(other, "id"))
        # Both sides are sent as rows.
        with configured(spark, spark_sparkext_partitioned="never"):
            both = facts(spark, "true"), facts(spark, "true").hint("pipelined_join")
            assert_rows(spark, lambda: both[0].join(both[1], "id", "full"))


@pytest.mark.parametrize("rows", [0, 1, FIRST - 1, FIRST, FIRST + 1, 5 * FIRST + 1])
def test_sizes(spark: SparkSession, tmp_path: Path, rows: int) -> None:
    n = F.col("id")
    spark.range(rows, numPartitions=1).select(
        "id", (n % 97).alias("k"), F.when(n % 7 != 0, n.cast("string")).alias("s"), (n % 3 == 0).alias("flag")
    ).write.orc(str(tmp_path / "sized"))
    with configured(spark, spark_sql_orc_columnarReaderBatchSize=999, spark_sql_adaptive_enabled="false"):
        for where in ("true", "id % 2 = 0 AND s > '3'"):
            assert_columns(
                spark, lambda: digest(joined(spark, spark.read.orc(str(tmp_path / "sized")).where(where), "left"))
            )


def test_rows_of_any_width(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(12, numPartitions=1).select(
        (F.col("id") % 3).alias("k"),
        F.expr("repeat(string(id), int(3000000 * (id % 4)))").alias("s"),
        F.expr("encode(repeat('x', int(20000000 * int(id = 7))), 'utf-8')").alias("bin"),
    ).write.orc(str(tmp_path / "wide"))
    assert_columns(spark, lambda: digest(joined(spark, spark.read.orc(str(tmp_path / "wide")), "inner")))


def test_many_texts_of_a_row_are_limited_together(spark: SparkSession, tmp_path: Path) -> None:
    """The limits of single columns would allow a batch of any size, so all columns together have a limit, too."""
    rows, width, columns = 60, 100_000, 12
    names = [f"s{number}" for number in range(columns)]
    table = pa.table({"k": list(range(rows)), **dict.fromkeys(names, ["x" * width] * rows)})
    pq.write_table(table, tmp_path / "wide.parquet")
    fitting = (64 << 20) // columns // width

    def query() -> DataFrame:
        left = joined(spark, spark.read.parquet(str(tmp_path)), "inner")
        return left.agg(F.count("*"), *(F.sum(F.octet_length(name)) for name in names))

    df = assert_columns(spark, query)
    (task,) = sparkext.report(df).tasks
    assert task.batches_in == -(-rows // fitting) > 1


def test_dictionaries(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    table = pa.concat_tables([pq.read_table(folder / "parquet" / "some")] * 4)
    table = table.drop_columns(["span"])
    pq.write_table(table, tmp_path / "coded.parquet", coerce_timestamps="us", row_group_size=500)
    pq.write_table(table, tmp_path / "plain.parquet", coerce_timestamps="us", use_dictionary=False)
    for offheap in ("false", "true"):
        with configured(spark, spark_sql_columnVector_offheap_enabled=offheap):
            for where in ("true", "flag OR i4 > 0"):
                assert_columns(spark, lambda: joined(spark, spark.read.parquet(str(tmp_path)).where(where), "left"))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_build_sides(spark: SparkSession, folder: Path, how: str) -> None:
    read = spark.read.orc(str(folder / "orc" / "some")).withColumnRenamed("k", "key")
    probe = dims(spark).repartition(2)
    for build in (read, read.where("s > 'w' AND id > 9").drop("d9"), read.where("id < 0")):
        df = assert_like_spark(spark, lambda: probe.join(build.hint("pipelined_join"), F.expr("dk = key"), how))
        assert_pipelined(df, 1)
        assert "scan: columns from Spark (" in df._jdf.queryExecution().explainString(  # type: ignore[operator]
            spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")  # type: ignore[union-attr]
        )


def test_cached(spark: SparkSession, folder: Path) -> None:
    cached = spark.read.orc(str(folder / "orc" / "some")).select("id", *NUMBERS).cache()
    try:
        cached.count()
        assert_columns(spark, lambda: joined(spark, cached.where("f8 > 3"), "inner"))
        with configured(spark, spark_sql_adaptive_enabled="false"):
            assert_columns(spark, lambda: joined(spark, cached))
    finally:
        cached.unpersist()


def test_partitions_and_columns_that_a_file_lacks(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    some = spark.read.orc(str(folder / "orc" / "some"))
    some.withColumn("p", F.when(F.col("id") % 3 > 0, F.concat(F.lit("p"), F.col("id") % 3))).write.partitionBy(
        "p"
    ).parquet(str(tmp_path / "parts"))
    some.select("id", "k", F.lit("p1").alias("p")).write.mode("append").partitionBy("p").parquet(
        str(tmp_path / "parts")
    )
    read = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "parts"))
    assert_columns(spark, lambda: joined(spark, read))


@pytest.mark.parametrize("how", ["inner", "left_anti"])
def test_filters_and_projections(spark: SparkSession, folder: Path, how: str) -> None:
    spark.read.orc(str(folder / "orc" / "some")).createOrReplaceTempView("columnar_facts")
    dims(spark).createOrReplaceTempView("columnar_dims")
    condition = "e1 = dk AND e2 IS NOT NULL" if how.startswith("left_") else "e1 = dk"
    for where in (
        "true",
        "i4 IS NOT NULL AND s IS NOT NULL",
        "i4 IS NULL",
        "f8 > 3 OR s LIKE '%1'",
        "d18 < 0 AND day < DATE '1990-01-01' AND length(s) = 8",
        "id < 0",
    ):
        text = f"""
            SELECT /*+ PIPELINED_JOIN(b) */ *
            FROM (SELECT s AS e2, k AS e1, s AS again, d38, id AS e0 FROM columnar_facts WHERE {where}) a
            {how.replace("_", " ")} JOIN columnar_dims b ON {condition}
        """
        assert_columns(spark, lambda: spark.sql(text))
    for view in ("columnar_facts", "columnar_dims"):
        spark.catalog.dropTempView(view)


def test_rows_where_columns_would_not_do(spark: SparkSession, folder: Path) -> None:
    def some() -> DataFrame:
        return spark.read.orc(str(folder / "orc" / "some")).select("id", "k", "s")

    assert_rows(spark, lambda: joined(spark, some().withColumn("sum", F.col("id") + 1)))
    assert_rows(spark, lambda: joined(spark, some().where("rand(1) < 0.5")))
    assert_rows(spark, lambda: joined(spark, some().where("id > (SELECT min(id) FROM range(9))")))
    assert_rows(spark, lambda: joined(spark, some().withColumn("list", F.array("id"))))
    with configured(spark, spark_sparkext_partitioned="never"):
        assert_rows(spark, lambda: joined(spark, some(), "full"))
    assert_rows(spark, lambda: joined(spark, some().repartition(2)))
    with configured(spark, spark_sql_orc_enableVectorizedReader="false"):
        assert_rows(spark, lambda: joined(spark, some()))


def test_failures_of_filters_are_sparks(spark: SparkSession, folder: Path) -> None:
    query = joined(spark, spark.read.orc(str(folder / "orc" / "some")).where("i4 / (id - 7) > 0"))
    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        query.collect()


def test_filters_fail_on_the_rows_of_sparks(spark: SparkSession, folder: Path) -> None:
    """A null conjunct drops a row before later conjuncts can fail on it; a later false one prevents no failure."""

    def some(condition: str) -> DataFrame:
        return joined(spark, spark.read.orc(str(folder / "orc" / "some")).where(condition))

    assert_columns(spark, lambda: some("nullif(id, 7) > 0 AND i4 / (id - 7) > 0"))
    for setting in ("hint", "off"):
        with mode(spark, setting), pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            some("100 / (id - 7) > 0 AND short = 1").collect()


def test_memory_is_freed(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(200_000, numPartitions=2).select((F.col("id") % 40).alias("k"), "id").write.orc(str(tmp_path / "t"))
    allocator = spark._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator()  # type: ignore[union-attr]
    before = allocator.getAllocatedMemory()
    df = joined(spark, spark.read.orc(str(tmp_path / "t")), "inner")
    assert len(df.limit(3).collect()) == 3
    assert df.count() > 200_000
    assert "scan=columns" in plan_of(df)
    assert allocator.getAllocatedMemory() == before
