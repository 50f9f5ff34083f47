"""`scan_parquet` without the extension: workers read the rows that Spark's own reader gives, alone and under joins."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

import sparkext
from sparkext import asof_join, pipelined_join, report, scan_parquet, theta_join
from sparkext.build_sides.published_files import BroadcastFile
from sparkext.engine.derived_rows import DerivedRows
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.errors import InvalidScanError
from sparkext.joins.lineage import find_lineage
from tests.api.spark_checks import EXTENSION
from tests.support.rows import rows_of

UTC = datetime.timezone.utc
pytestmark = pytest.mark.skipif(EXTENSION, reason="with the extension it is Spark's reader, see the test at the end")


def assert_like_spark(frame: DataFrame, expected: DataFrame) -> None:
    """Assert equal names, types and rows, and that workers have read them."""
    assert [(f.name, f.dataType) for f in frame.schema] == [(f.name, f.dataType) for f in expected.schema]
    assert rows_of(frame) == rows_of(expected)
    metrics = [task.scan for task in report(frame).tasks]
    assert all(scan is not None for scan in metrics)


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every type that workers read, with nulls, in two partition folders and several row groups per file."""
    path = tmp_path_factory.mktemp("scan") / "all types #1? 100%25 ü"
    n = F.col("id")
    values = {
        "b": n % 2 == 0,
        "i8": (n % 100).cast("byte"),
        "i16": (n % 1000).cast("short"),
        "i32": n.cast("int"),
        "i64": n * 10**10,
        "f32": (n / 7).cast("float"),
        "f64": F.when(n % 5 == 0, F.lit(float("nan"))).otherwise(n / 7),
        "d9": (n / 100).cast("decimal(9,2)"),
        "d18": (n / 100).cast("decimal(18,2)"),
        "d38": (n / 100).cast("decimal(38,2)"),
        "s": F.concat(F.lit("text "), n % 13),
        "x": F.encode(n.cast("string"), "utf-8"),
        "day": F.date_add(F.lit("2024-01-01").cast("date"), n.cast("int") % 400),
        "t": F.timestamp_seconds(n * 86_399),
        "ntz": F.timestamp_seconds(n * 86_399).cast("timestamp_ntz"),
    }
    columns = [F.when(n % 11 != number, value).alias(name) for number, (name, value) in enumerate(values.items())]
    frame = spark.range(3000).select(n, *columns, (n % 2).cast("int").alias("part"), F.lit("a b=c").alias("text"))
    frame.write.option("parquet.block.size", 20_000).partitionBy("part", "text").parquet(str(path))
    return path


def test_all_columns_in_their_order(spark: SparkSession, folder: Path) -> None:
    assert_like_spark(scan_parquet(spark, folder), spark.read.parquet(str(folder)))


def test_chosen_columns_and_their_names(spark: SparkSession, folder: Path) -> None:
    names = ["s", "ID", "part", "i8"]
    assert_like_spark(scan_parquet(spark, str(folder), columns=names), spark.read.parquet(str(folder)).select(*names))


FILTERS: list[tuple[Any, str]] = [
    ([("id", "<", 100)], "id < 100"),
    ([("I64", ">=", 10**12), ("s", "!=", "text 3")], "i64 >= 1000000000000 AND s != 'text 3'"),
    ([[("id", "=", 7)], [("i8", "in", {1, 2}), ("b", "==", True)]], "id = 7 OR i8 IN (1, 2) AND b"),
    ([("s", "not in", ["text 1", "text 2"])], "s NOT IN ('text 1', 'text 2')"),
    ([("s", "is null")], "s IS NULL"),
    ([("f64", "is not null"), ("x", "IS  NOT NULL")], "f64 IS NOT NULL AND x IS NOT NULL"),
    ([("part", "=", 1)], "part = 1"),
    ([("d9", "<=", Decimal("1.5")), ("d38", ">", -1)], "d9 <= 1.5 AND d38 > -1"),
    ([("day", "<", datetime.date(2024, 2, 29))], "day < DATE'2024-02-29'"),
    ([("t", ">", datetime.datetime(2000, 1, 1, tzinfo=UTC))], "t > TIMESTAMP'2000-01-01 00:00:00Z'"),
    (
        [("ntz", ">", datetime.datetime(1970, 5, 1, 12, 0, 0, 1))],
        "ntz > TIMESTAMP_NTZ'1970-05-01 12:00:00.000001'",
    ),
    ([("id", "<", -1)], "id < -1"),
    # Comparisons of integers with other numbers follow Spark's rules.
    ([("id", ">", 5.0), ("i8", "<=", Decimal("7.00"))], "id > 5.0D AND i8 <= 7.00"),
    ([("id", ">", 5.5), ("id", ">=", -0.5), ("i8", "<", 6.5), ("i8", "<=", 6.5)], "id > 5.5D AND i8 < 6.5D"),
    ([("i32", "<", -0.5)], "i32 < -0.5D"),
    ([("i8", "=", 5.5)], "i8 = 5.5D"),
    ([("i8", "!=", 5.5)], "i8 != 5.5D"),
    ([("i8", "not in", [5.5])], "i8 NOT IN (5.5D)"),
    ([("i8", "in", [5.5, 7.0, 9])], "i8 IN (5.5D, 7.0D, 9D)"),
    (
        [("i64", "<", float(2**53 - 1)), ("id", ">", np.float64(100)), ("id", "<", np.int16(200))],
        "i64 < 9e15D AND id > 100 AND id < 200",
    ),
]


@pytest.mark.parametrize("filters, condition", FILTERS, ids=[condition for _, condition in FILTERS])
def test_filters(spark: SparkSession, folder: Path, filters: Any, condition: str) -> None:
    expected = spark.read.parquet(str(folder)).where(condition).select("id", "d38")
    assert_like_spark(scan_parquet(spark, folder, columns=["id", "d38"], filters=filters), expected)


def test_row_groups_that_statistics_rule_out_are_not_read(spark: SparkSession, folder: Path) -> None:
    out = scan_parquet(spark, folder, columns=["s"], filters=[("id", "<", 10)])
    assert out.count() == 10
    scans = [task.scan for task in report(out).tasks]
    assert sum(scan.row_groups_pruned for scan in scans) > sum(scan.row_groups for scan in scans) > 0


def test_joins_that_follow_read_the_files(spark: SparkSession, folder: Path) -> None:
    """One pipeline over the files, with build sides that workers read: the driver collects nothing."""
    probe = scan_parquet(spark, folder, columns=["id", "i8", "s"], filters=[("id", ">", 5)])
    build = scan_parquet(spark, folder, columns=["id", "t"], filters=[("id", "<", 2000)])
    right = build.withColumnRenamed("t", "other")
    out = probe.transform(pipelined_join(build, "id", "left")).transform(
        pipelined_join(scan_parquet(spark, folder, columns=["i16", "day"]), [("i8", "i16")])
    )
    lineage = find_lineage(out)
    assert lineage is not None and lineage.scan is not None
    assert [type(source) for source in lineage.sources] == [ScannedFiles, ScannedFiles]
    whole = spark.read.parquet(str(folder))
    left = whole.where("id > 5").select("id", "i8", "s")
    expected = left.join(whole.where("id < 2000").select("id", "t"), "id", "left").join(
        whole.select("i16", "day"), F.col("i8") == F.col("i16")
    )
    assert_like_spark(out, expected)
    computed = probe.transform(pipelined_join(right, "id"))
    assert isinstance(find_lineage(computed).sources[0], BroadcastFile)  # type: ignore[union-attr]
    assert rows_of(computed) == rows_of(left.join(whole.where("id < 2000").selectExpr("id", "t AS other"), "id"))


@pytest.mark.parametrize("how", ["semi", "anti", "right", "full"])
def test_every_kind_of_join(spark: SparkSession, folder: Path, how: str) -> None:
    probe = scan_parquet(spark, folder, columns=["id", "s"], filters=[("id", "<", 50)])
    build = scan_parquet(spark, folder, columns=["id", "i32"], filters=[("id", ">", 20), ("id", "<", 80)])
    whole = spark.read.parquet(str(folder))
    expected = (
        whole.where("id < 50").select("id", "s").join(whole.where("id > 20 AND id < 80").select("id", "i32"), "id", how)
    )
    out = probe.transform(pipelined_join(build, "id", how))
    assert out.columns == expected.columns
    assert rows_of(out) == rows_of(expected)


def test_as_of_and_theta_joins(spark: SparkSession, folder: Path) -> None:
    probe = scan_parquet(spark, folder, columns=["id", "s"], filters=[("id", "<", 300)])
    build = scan_parquet(
        spark, folder, columns=["i32", "day"], filters=[("i32", "in", [10, 200]), ("day", "is not null")]
    )
    near = probe.transform(asof_join(build, ("id", "i32")))
    days = {row.i32: row.day for row in build.collect()}
    for row in near.collect():
        assert row.day == (days[200] if row.id >= 200 else days[10] if row.id >= 10 else None)
    crossed = probe.transform(theta_join(build, lambda one, two: one.id * 2 == two.i32, how="semi"))
    assert sorted(row.id for row in crossed.collect()) == [5, 100]


def test_a_build_side_is_indexed_once_for_all_queries_until_a_file_changes(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "dim"
    shutil.copytree(folder, path)

    def joined() -> list[bool]:
        probe = scan_parquet(spark, folder, columns=["id"])
        out = probe.transform(pipelined_join(scan_parquet(spark, path, columns=["id", "s"]), "id"))
        assert out.count() == 3000
        return [task.indexes[0]["reused"] for task in report(out).tasks]

    assert not all(joined())  # a task that begins late uses the index that another has just built
    assert all(joined())
    for file in path.rglob("*.parquet"):
        file.touch()
    assert not all(joined())  # a task that begins late uses the index that another has just built


@pytest.mark.parametrize("how", ["inner", "left", "semi"])
def test_a_build_side_that_is_a_pipeline_of_scans_is_made_by_workers(
    spark: SparkSession, folder: Path, how: str
) -> None:
    whole = spark.read.parquet(str(folder))
    left, right = scan_parquet(spark, folder, columns=["id", "s"]), whole.where("id > 2900").select("id", "i32")
    scanned = scan_parquet(spark, folder, columns=["id", "i32"], filters=[("id", ">", 2900)])
    dates = scan_parquet(spark, folder, columns=["i16", "day"])
    build = scanned.transform(pipelined_join(dates, [("i32", "i16")], how))
    out = left.transform(pipelined_join(build, "id"))
    assert [type(source) for source in find_lineage(out).sources] == [DerivedRows]  # type: ignore[union-attr]
    expected = right.join(whole.select("i16", "day"), F.col("i32") == F.col("i16"), how)
    assert_like_spark(out, whole.select("id", "s").join(expected, "id"))
    some = scanned.transform(pipelined_join(spark.range(2950).selectExpr("id AS other"), [("id", "other")]))
    again = left.transform(pipelined_join(some, "id", "semi"))  # with a published build side
    assert [row.id for row in again.orderBy("id").collect()] == list(range(2901, 2950))


def test_other_uses_are_those_of_any_dataframe(spark: SparkSession, folder: Path) -> None:
    frame = scan_parquet(spark, folder, columns=["id", "part"])
    assert frame.where("id < 10").groupBy("part").count().count() == 2
    assert frame.select("id").transform(pipelined_join(frame, "id")).count() == 3000
    cached = scan_parquet(spark, folder, columns=["id"]).cache()
    out = cached.transform(pipelined_join(cached, "id"))
    assert find_lineage(out).scan is None  # type: ignore[union-attr]
    assert out.count() == 3000
    cached.unpersist()


def test_no_file_and_empty_files(spark: SparkSession, tmp_path: Path) -> None:
    schema = StructType([StructField("k", LongType())])
    spark.createDataFrame([], schema).write.parquet(str(tmp_path / "empty"))
    assert_like_spark(scan_parquet(spark, tmp_path / "empty"), spark.read.parquet(str(tmp_path / "empty")))
    with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
        scan_parquet(spark, tmp_path / "nowhere")


def test_files_that_lack_a_column_and_a_file_that_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        pq.write_table(pa.table({"k": [number], name: [number]}), tmp_path / f"{name}.parquet")
    with_all = [("spark.sql.parquet.mergeSchema", "true")]
    for key, value in with_all:
        spark.conf.set(key, value)
    try:
        out = scan_parquet(spark, tmp_path)
        assert_like_spark(out, spark.read.parquet(str(tmp_path)))
        (tmp_path / "a.parquet").unlink()
        with pytest.raises(PySparkException, match=r"FileReadError: cannot read '.*a\.parquet': no such file"):
            out.collect()
    finally:
        for key, _ in with_all:
            spark.conf.unset(key)


@pytest.mark.parametrize(
    "arguments, problems",
    [
        (
            {"columns": ["id", "nowhere"], "filters": [("id", "<", "5")]},
            ["'nowhere', which does not exist. Available: ", "int64 with '5'"],
        ),
        ({"columns": []}, [r"columns=\[\]: expected a list"]),
        ({"columns": "id"}, ["columns='id'"]),
        ({"columns": ["id", "s", "ID"]}, ["columns names 'id' more than once"]),
        ({"filters": "id < 5"}, ["filters='id < 5'"]),
        ({"filters": [("id", "~", 5)]}, ["expected one of ="]),
        ({"filters": [("id", "is null", 5)]}, ["without a value"]),
        ({"filters": [("id", "<")]}, ["expected one of ="]),
        ({"filters": [[("id", "=", 1)], []]}, ["an empty list"]),
        ({"filters": [("id",)]}, [r"expected \(name, operator, value\)"]),
        ({"filters": [("nowhere", "<", 5)]}, ["filters names 'nowhere'"]),
        ({"filters": [("f64", "<", 5.0)]}, ["'f64': columns of its type can only be tested for null"]),
        ({"filters": [("id", "in", [])]}, ["a list of one or more"]),
        ({"filters": [("b", "<", True)]}, ["booleans"]),
        ({"filters": [("i8", "<", 128)]}, ["int8 with 128: expected an int within its range"]),
        ({"filters": [("i64", "<", float(2**53))]}, ["or a float or Decimal under"]),
        ({"filters": [("id", "in", [1, float("nan")])]}, ["'id' of type int64 with nan"]),
        ({"filters": [("id", "=", True)]}, ["'id' of type int64 with True"]),
        ({"filters": [("d9", "<", Decimal("0.001"))]}, ["at most 9 digits, 2 of them after the point"]),
        ({"filters": [("t", "<", datetime.datetime(2024, 1, 1))]}, ["a datetime.datetime with a time zone"]),
        ({"path": []}, [r"path=\[\]"]),
    ],
)
def test_bad_calls(spark: SparkSession, folder: Path, arguments: dict[str, Any], problems: Sequence[str]) -> None:
    with pytest.raises(InvalidScanError) as caught:
        scan_parquet(spark, **{"path": folder, **arguments})
    assert len(caught.value.problems) == len(problems)
    for problem in problems:
        assert caught.match(problem)


def stored(path: Path, column: pa.Array, **options: Any) -> Path:
    pq.write_table(pa.table({"k": [1, 2], "v": column}), path / "file.parquet", **options)
    return path


REFUSED: list[tuple[str, Callable[[Path], Path], str]] = [
    ("nested", lambda path: stored(path, pa.array([[1], [2]])), "workers do not read column 'v' of type array<bigint>"),
    ("unsigned", lambda path: stored(path, pa.array([1, 2], pa.uint32())), "which Spark reads in its own way"),
    ("unsigned 64", lambda path: stored(path, pa.array([1, 2], pa.uint64())), "which Spark reads in its own way"),
    ("fixed bytes", lambda path: stored(path, pa.array([b"ab", b"cd"], pa.binary(2))), "FIXED_LEN_BYTE_ARRAY"),
]


@pytest.mark.parametrize("make, message", [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_spark_reads_in_its_own_way_is_refused(
    spark: SparkSession, tmp_path: Path, make: Callable[[Path], Path], message: str
) -> None:
    """The error is raised by the call, or by the worker that opens the file; rows are never wrong.

    Other columns are read.
    """
    path = make(tmp_path)
    with pytest.raises((InvalidScanError, PySparkException), match=message):
        scan_parquet(spark, path).collect()
    assert rows_of(scan_parquet(spark, path, columns=["k"])) == rows_of(spark.read.parquet(str(path)).select("k"))


def test_dates_of_another_calendar_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    days = pa.array([datetime.date(1500, 1, 1), datetime.date(2000, 1, 1)])
    legacy = pa.table({"v": days}).replace_schema_metadata(
        {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    )
    pq.write_table(legacy, tmp_path / "file.parquet")
    with pytest.raises(PySparkException, match="column v may use another calendar"):
        scan_parquet(spark, tmp_path).collect()
    modes = {key: spark.conf.get(key) for key in ("spark.sql.parquet.datetimeRebaseModeInRead",)}
    path = stored(tmp_path / "..", days) / "file.parquet"
    try:
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
        with pytest.raises(PySparkException, match="another calendar"):
            scan_parquet(spark, path).collect()
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "CORRECTED")
        assert_like_spark(scan_parquet(spark, path), spark.read.parquet(str(path)))
    finally:
        for key, value in modes.items():
            spark.conf.set(key, value)


def test_files_that_no_spark_wrote_are_read_by_default(spark: SparkSession, tmp_path: Path) -> None:
    moments = pa.array([datetime.datetime(2024, 1, 1), None], pa.timestamp("us", "UTC"))
    path = stored(tmp_path, moments)
    assert_like_spark(scan_parquet(spark, path), spark.read.parquet(str(path)))


def test_a_kept_index_is_not_taken_for_another_calendar(spark: SparkSession, tmp_path: Path) -> None:
    path = stored(tmp_path, pa.array([datetime.date(1500, 1, 1), datetime.date(2000, 1, 1)]))

    def joined() -> DataFrame:
        return spark.range(3).transform(pipelined_join(scan_parquet(spark, path), [("id", "k")]))

    assert joined().count() == 2
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    try:
        with pytest.raises(PySparkException, match="another calendar"):
            joined().count()
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")


def test_the_folder_says_what_a_partition_is(spark: SparkSession, tmp_path: Path) -> None:
    """The folder's value takes precedence over a column in the file, and files may be named like partitions."""
    folder = tmp_path / "part=1"
    folder.mkdir()
    pq.write_table(pa.table({"k": [1, 2], "PART": [98, 99]}), folder / "_k=1.parquet")
    assert_like_spark(scan_parquet(spark, tmp_path), spark.read.parquet(str(tmp_path)))
    assert scan_parquet(spark, tmp_path, columns=["k"], filters=[("part", "=", 1)]).count() == 2


@pytest.mark.parametrize("name", ["length", "Path", "content", "modificationTime"])
def test_partitions_called_like_columns_of_the_listing(spark: SparkSession, tmp_path: Path, name: str) -> None:
    spark.range(9).withColumn(name, F.lit(3)).write.partitionBy(name).parquet(str(tmp_path / "parts"))
    with pytest.raises(InvalidScanError, match=f"partition column '{name}'"):
        scan_parquet(spark, tmp_path / "parts", columns=["id"])
    spark.range(9).withColumn(name, F.lit(3)).write.parquet(str(tmp_path / "plain"))
    assert scan_parquet(spark, tmp_path / "plain").agg(F.sum(name)).collect()[0][0] == 27


def test_settings_that_change_what_files_hold_are_refused(spark: SparkSession, folder: Path) -> None:
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    try:
        with pytest.raises(InvalidScanError, match=r"spark\.sql\.files\.ignoreCorruptFiles is true"):
            scan_parquet(spark, folder)
    finally:
        spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


def test_a_file_whose_type_differs_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": pa.array([1], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"k": pa.array([1], pa.int32())}), tmp_path / "b.parquet")
    with pytest.raises(PySparkException, match=r"column k has type int(32|64) in the file, expected int(64|32)"):
        scan_parquet(spark, tmp_path).collect()


def test_the_package_offers_it() -> None:
    assert sparkext.scan_parquet is scan_parquet
