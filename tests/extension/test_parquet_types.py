"""Every stored Parquet type against every declared type: workers read it as Spark does, or leave it to Spark.

Each table has a column per case. The columns that workers read are queried together, and give Spark's rows. Each other
column is left to Spark with its reason, and gives Spark's rows or Spark's error.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext.parquet.file_stores import LocalFiles
from sparkext.parquet.opened_file import OpenedFile
from sparkext.parquet.rules import Calendars, find_calendar_problem, find_read_problem
from sparkext.spark.arrow import arrow_schema
from tests.support.planned_joins import assert_like_spark, mode, plan_of, scans_of
from tests.support.sessions import configured

ROWS = 3
NTZ = {"spark_sql_parquet_inferTimestampNTZ_enabled": "false"}


@dataclass(frozen=True)
class Case:
    """A stored column, the type that the query declares for it, and the reason why Spark reads it.

    `left` is None if workers read the column. `fails` means that Spark fails to read it, too.
    """

    stored: Any
    declared: str
    left: str | None = None
    fails: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


def ints(arrow_type: pa.DataType) -> pa.Array:
    bits = arrow_type.bit_width
    extremes = (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if pa.types.is_signed_integer(arrow_type) else (0, (1 << bits) - 1)
    )
    return pa.array([*extremes, None], arrow_type)


def decimals(arrow_type: pa.DataType) -> pa.Array:
    return pa.array([Decimal("1.25"), Decimal("-9.99"), None], arrow_type)


OLD, NEW = dt.datetime(1500, 1, 1), dt.datetime(2020, 1, 1, 1, 2, 3, 456000)


def times(unit: str, zone: str | None = None) -> pa.Array:
    return pa.array([OLD, NEW, None], pa.timestamp(unit, zone))


def some(first: Any, second: Any, arrow_type: pa.DataType | None = None) -> pa.Array:
    return pa.array([first, second, None], arrow_type)


TEXT = some("a", "wörter")
DAYS = some(OLD.date(), NEW.date())
NANOS = some(1, 1 << 60, pa.timestamp("ns"))

ARROW: dict[str, Case] = {
    "boolean": Case(some(True, False), "boolean"),
    "int8": Case(ints(pa.int8()), "tinyint"),
    "int16": Case(ints(pa.int16()), "smallint"),
    "int32": Case(ints(pa.int32()), "int"),
    "int64": Case(ints(pa.int64()), "bigint"),
    "uint8": Case(ints(pa.uint8()), "smallint", "is stored as"),
    "uint16": Case(ints(pa.uint16()), "int", "is stored as"),
    "uint32": Case(ints(pa.uint32()), "bigint", "is stored as"),
    "uint64": Case(ints(pa.uint64()), "decimal(20,0)", "is stored as"),
    "uint64 wider": Case(ints(pa.uint64()), "decimal(38,0)", "is of type decimal(20,0)", fails=True),
    "uint64 as bigint": Case(ints(pa.uint64()), "bigint", "is of type decimal(20,0)", fails=True),
    "float": Case(some(1.5, float("nan"), pa.float32()), "float"),
    "double": Case(some(-0.0, float("inf")), "double"),
    "half float": Case(some(1.5, 2.5, pa.float16()), "binary", "is of no type"),
    "int8 as int": Case(ints(pa.int8()), "int", "is of type tinyint"),
    "int32 as tinyint": Case(ints(pa.int32()), "tinyint", "is of type int"),
    "int32 as bigint": Case(ints(pa.int32()), "bigint", "is of type int"),
    "int32 as double": Case(ints(pa.int32()), "double", "is of type int"),
    "int32 as decimal": Case(ints(pa.int32()), "decimal(10,0)", "is of type int"),
    "int64 as int": Case(ints(pa.int64()), "int", "is of type bigint", fails=True),
    "float as double": Case(some(1.5, 0.1, pa.float32()), "double", "is of type float"),
    "boolean as int": Case(some(True, False), "int", "is of type boolean", fails=True),
    "decimal of 3 bytes": Case(decimals(pa.decimal128(5, 2)), "decimal(5,2)"),
    "decimal of 7 bytes": Case(decimals(pa.decimal128(15, 2)), "decimal(15,2)"),
    "decimal of 16 bytes": Case(decimals(pa.decimal128(38, 2)), "decimal(38,2)"),
    "decimal32": Case(decimals(pa.decimal32(5, 2)), "decimal(5,2)"),
    "decimal64": Case(decimals(pa.decimal64(15, 2)), "decimal(15,2)"),
    "decimal256": Case(decimals(pa.decimal256(30, 2)), "decimal(30,2)"),
    "decimal of more digits": Case(decimals(pa.decimal128(5, 2)), "decimal(10,2)", "is of type decimal(5,2)"),
    "decimal of more scale": Case(decimals(pa.decimal128(5, 2)), "decimal(12,4)", "is of type decimal(5,2)"),
    "decimal of fewer digits": Case(
        decimals(pa.decimal128(5, 2)), "decimal(4,2)", "is of type decimal(5,2)", fails=True
    ),
    "string": Case(TEXT, "string"),
    "large string": Case(TEXT.cast(pa.large_string()), "string"),
    "string view": Case(TEXT.cast(pa.string_view()), "string"),
    "dictionary of strings": Case(TEXT.dictionary_encode(), "string"),
    "dictionary of integers": Case(ints(pa.int64()).dictionary_encode(), "bigint"),
    "json": Case(pa.ExtensionArray.from_storage(pa.json_(), some("{}", "[]")), "string", "is stored as"),
    "string as binary": Case(TEXT, "binary", "is of type string"),
    "string as int": Case(TEXT, "int", "is of type string", fails=True),
    "collated": Case(TEXT, "string collate UTF8_LCASE", "of type string collate UTF8_LCASE"),
    "binary": Case(some(b"\xff", b""), "binary"),
    "large binary": Case(some(b"\xff", b"", pa.large_binary()), "binary"),
    "binary as string": Case(some(b"a", b""), "string", "is of type binary"),
    "binary is string": Case(
        some(b"a", b""), "string", "is stored as", settings={"spark_sql_parquet_binaryAsString": "true"}
    ),
    "fixed binary": Case(some(b"ab", b"cd", pa.binary(2)), "binary", "is stored as"),
    "uuid": Case(some(b"a" * 16, b"b" * 16, pa.uuid()), "binary", "is of no type"),
    "date": Case(DAYS, "date"),
    "date64": Case(DAYS.cast(pa.date64()), "date"),
    "date as timestamp_ntz": Case(DAYS, "timestamp_ntz", "is of type date"),
    "date as timestamp": Case(DAYS, "timestamp", "is of type date", fails=True),
    "milliseconds": Case(times("ms"), "timestamp_ntz"),
    "microseconds": Case(times("us"), "timestamp_ntz"),
    "milliseconds in UTC": Case(times("ms", "UTC"), "timestamp"),
    "microseconds in a zone": Case(times("us", "Asia/Tokyo"), "timestamp"),
    "local as timestamp": Case(times("us"), "timestamp", "is of type timestamp_ntz"),
    "local is timestamp": Case(times("us"), "timestamp", settings=NTZ),
    "local is timestamp, of another calendar": Case(
        times("us"),
        "timestamp",
        "uses another calendar",
        settings=NTZ | {"spark_sql_parquet_datetimeRebaseModeInRead": "LEGACY"},
    ),
    "in UTC as timestamp_ntz": Case(times("us", "UTC"), "timestamp_ntz", "is of type timestamp"),
    "nanoseconds": Case(NANOS, "timestamp_ntz", "is of no type", fails=True),
    "nanoseconds as numbers": Case(
        NANOS, "bigint", "is stored as", settings={"spark_sql_legacy_parquet_nanosAsLong": "true"}
    ),
    "duration": Case(some(5, 1 << 40, pa.duration("us")), "bigint"),
    "duration as interval": Case(
        some(5, 1 << 40, pa.duration("us")), "interval day to second", "column duration as interval of type"
    ),
    "time": Case(some(5, 6, pa.time64("us")), "bigint", "is of"),
    "bool8": Case(pa.ExtensionArray.from_storage(pa.bool8(), some(1, 0, pa.int8())), "tinyint"),
    "opaque": Case(pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "a", "b"), some(1, 2)), "bigint"),
    "nothing": Case(pa.nulls(ROWS), "int", "is"),
    "list": Case(some([1], []), "array<bigint>", "of type array<bigint>"),
    "list as bigint": Case(some([1], []), "bigint", "is nested", fails=True),
    "struct": Case(some({"a": 1}, {"a": None}), "struct<a:bigint>", "of type struct<a:bigint>"),
    "missing": Case(None, "timestamp"),
}

INTEGERS = {name: case for name, case in ARROW.items() if name.startswith("decimal of") and case.left is None}
INT96 = {
    "int96": Case(times("us", "UTC"), "timestamp"),
    "int96, nanoseconds": Case(NANOS.cast(pa.timestamp("ns", "UTC")), "timestamp"),
    "int96 as timestamp_ntz": Case(times("us", "UTC"), "timestamp_ntz", "is of type timestamp"),
    "int96, of another calendar": Case(
        times("us", "UTC"),
        "timestamp",
        "uses another calendar",
        settings={"spark_sql_parquet_int96RebaseModeInRead": "LEGACY"},
    ),
}
"""Further variants of the Arrow table: decimals stored as integers, and timestamps as Impala writes them."""

BINARY = [b"\x01", b"\xff\xff", None]
PARQUET: dict[str, Case] = {
    "required_int": Case(("required int32 {}", [1, 2, 3]), "int"),
    "repeated_int": Case(("repeated int32 {}", [1, 2, None]), "array<int>", "of type array<int>"),
    "repeated_int_as_int": Case(("repeated int32 {}", [1, 2, None]), "int", "is nested", fails=True),
    "decimal_of_bytes": Case(("optional binary {} (DECIMAL(38,2))", BINARY), "decimal(38,2)", "is stored as"),
    "decimal_of_few_bytes": Case(("optional binary {} (DECIMAL(9,2))", BINARY), "decimal(9,2)", "is stored as", True),
    "decimal_of_20_bytes": Case(
        ("optional fixed_len_byte_array(20) {} (DECIMAL(38,2))", [b"\1".rjust(20, b"\0"), b"\xff" * 20, None]),
        "decimal(38,2)",
        "is stored as",
    ),
    "enum": Case(("optional binary {} (ENUM)", [b"A", b"B", None]), "string", "is stored as"),
    "enum_as_binary": Case(("optional binary {} (ENUM)", [b"A", b"B", None]), "binary", "is of type string"),
    "bson": Case(("optional binary {} (BSON)", BINARY), "binary", "is stored as"),
    "interval": Case(
        ("optional fixed_len_byte_array(12) {} (INTERVAL)", [b"a" * 12, b"b" * 12, None]), "binary", "is of no type"
    ),
    "utf8": Case(("optional binary {} (UTF8)", [b"a", b"not \xff text", None]), "string"),
}
"""Columns that only Parquet's own writer can write."""

TABLES = {"arrow": ARROW, "integers": INTEGERS, "int96": INT96, "parquet": PARQUET}
LEFT = [(table, name) for table, cases in TABLES.items() for name, case in cases.items() if case.left is not None]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("types")
    options = {"integers": {"store_decimal_as_integer": True}, "int96": {"use_deprecated_int96_timestamps": True}}
    for name in ("arrow", "integers", "int96"):
        columns = {column: case.stored for column, case in TABLES[name].items() if case.stored is not None}
        table = pa.table({"k": pa.array(range(ROWS), pa.int32()), **columns})
        pq.write_table(table, folder / f"{name}.parquet", **options.get(name, {}))
    write_parquet(spark, folder / "parquet.parquet")
    return folder


def write_parquet(spark: SparkSession, path: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    fields = "; ".join(case.stored[0].format(name) for name, case in PARQUET.items())
    schema = jvm.org.apache.parquet.schema.MessageTypeParser.parseMessageType(
        f"message m {{ required int32 k; {fields}; }}"
    )
    example = jvm.org.apache.parquet
    place = jvm.org.apache.hadoop.fs.Path(str(path))
    writer = example.hadoop.example.ExampleParquetWriter.builder(place).withType(schema).build()
    for row in range(ROWS):
        group = example.example.data.simple.SimpleGroup(schema)
        group.append("k", row)
        for name, case in PARQUET.items():
            value = case.stored[1][row]
            if isinstance(value, bytes):
                value = example.io.api.Binary.fromConstantByteArray(value)
            if value is not None:
                group.append(name, value)
        writer.write(group)
    writer.close()


def query(spark: SparkSession, folder: Path, table: str, names: Sequence[str]) -> DataFrame:
    """Return the rows of these columns with the types that the cases declare."""
    schema = ", ".join(["k int", *(f"`{name}` {TABLES[table][name].declared}" for name in names)])
    rows = spark.read.schema(schema).parquet(str(folder / f"{table}.parquet"))
    return rows.join(spark.range(ROWS).hint("pipelined_join"), rows.k == F.col("id"), "left")


def by_settings(table: str, names: Sequence[str]) -> Iterator[tuple[Mapping[str, str], list[str]]]:
    """Group these columns by the settings that they are read with."""
    known = [TABLES[table][name].settings for name in names]
    for settings in (one for number, one in enumerate(known) if one not in known[:number]):
        yield settings, [name for name in names if TABLES[table][name].settings == settings]


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("table", TABLES)
def test_workers_read_what_spark_reads(spark: SparkSession, folder: Path, table: str, vectorized: bool) -> None:
    """With and without Spark's vectorized reader."""
    read = [name for name, case in TABLES[table].items() if case.left is None]
    for settings, names in by_settings(table, read):
        with configured(spark, spark_sql_parquet_enableVectorizedReader=str(vectorized).lower(), **settings):
            out = assert_like_spark(spark, lambda names=names: query(spark, folder, table, names))
        assert [fused for _, fused, _ in scans_of(out)] == [True], plan_of(out)


@pytest.mark.parametrize(("table", "name"), LEFT)
def test_what_is_left_to_spark_says_why(spark: SparkSession, folder: Path, table: str, name: str) -> None:
    case = TABLES[table][name]
    assert case.left is not None
    with configured(spark, **case.settings):
        out = query(spark, folder, table, [name])
        ((_, fused, said),) = scans_of(out)
        assert not fused and case.left in said and name in said, said
        if case.fails:
            sparks = failure(out)
            with mode(spark, "off"):
                assert sparks == failure(query(spark, folder, table, [name]))


@pytest.mark.parametrize("table", TABLES)
def test_what_is_left_to_spark_has_its_rows(spark: SparkSession, folder: Path, table: str) -> None:
    left = [name for name, case in TABLES[table].items() if case.left is not None and not case.fails]
    for settings, names in by_settings(table, left):
        with configured(spark, **settings):
            assert_like_spark(spark, lambda names=names: query(spark, folder, table, names))


@pytest.mark.parametrize("table", TABLES)
def test_scan_parquet_has_the_same_rules(spark: SparkSession, folder: Path, table: str) -> None:
    """`scan_parquet` has these rules in Python, because no planner reads footers for it.

    Cases with settings are left out: `scan_parquet` rejects the settings first.
    """
    path = folder / f"{table}.parquet"
    calendars = Calendars(datetime=True, int96=True)
    for name, case in TABLES[table].items():
        if case.settings or "collate" in case.declared:
            continue
        declared = arrow_schema(spark.read.schema(f"`{name}` {case.declared}").parquet(str(path)).schema)
        file = OpenedFile(str(path), (), LocalFiles(), [name], case_sensitive=False)
        problem = find_read_problem(
            file.metadata, file.match_names(0), name, file.leaf(0), declared.field(0).type, calendars
        )
        assert (problem is None) is (case.left is None), (name, problem)


WRITERS = (None, "2.4.8", "3.0.0", "3.0.3", "3.1.0", "4.0.1")
LEGACY = ("org.apache.spark.legacyDateTime", "org.apache.spark.legacyINT96")


@pytest.mark.parametrize("setting", ["CORRECTED", "LEGACY", "EXCEPTION"])
def test_scan_parquet_has_sparks_calendars(spark: SparkSession, setting: str) -> None:
    """For files of each version of Spark, and for files that Spark has not written."""
    jvm: Any = spark._jvm
    sparks = jvm.org.apache.spark.sql.execution.datasources.DataSourceUtils
    calendars = Calendars(datetime=setting == "CORRECTED", int96=setting == "CORRECTED")
    for writer, *legacy in itertools.product(WRITERS, *[(False, True)] * len(LEGACY)):
        said = {key: "" for key, is_legacy in zip(LEGACY, legacy, strict=True) if is_legacy}
        said |= {} if writer is None else {"org.apache.spark.version": writer}
        known = jvm.PythonUtils.toScalaMap(said).withDefaultValue(None)
        for stored, spec in (
            (pa.date32(), sparks.datetimeRebaseSpec),
            (pa.timestamp("us", "UTC"), sparks.datetimeRebaseSpec),
            (pa.timestamp("ns", "UTC"), sparks.int96RebaseSpec),
        ):
            file = io.BytesIO()
            table = pa.table({"day": pa.array([0], stored)}).replace_schema_metadata(said)
            pq.write_table(table, file, use_deprecated_int96_timestamps=stored == pa.timestamp("ns", "UTC"))
            target = pa.date32() if stored == pa.date32() else pa.timestamp("us", "UTC")
            ours = find_calendar_problem(pq.read_metadata(file), "day", 0, target, calendars)
            assert (ours is not None) is (spec(known, setting).mode().toString() != "CORRECTED"), (stored, said)


def test_values_that_a_type_does_not_hold(spark: SparkSession, tmp_path: Path) -> None:
    """Milliseconds that overflow as microseconds: both readers fail."""
    cases = {"k": pa.array([0], pa.int32()), "milliseconds": pa.array([1 << 62], pa.timestamp("ms"))}
    pq.write_table(pa.table(cases), tmp_path / "arrow.parquet")
    out = query(spark, tmp_path, "arrow", ["milliseconds"])
    assert [fused for _, fused, _ in scans_of(out)] == [True], plan_of(out)
    ours = failure(out)
    with mode(spark, "off"):
        assert ours == failure(query(spark, tmp_path, "arrow", ["milliseconds"]))


def failure(df: DataFrame) -> str:
    """Return the error condition of a failing query, or the JVM exception's class if there is no condition."""
    with pytest.raises((PySparkException, Py4JJavaError)) as told:
        df.collect()
    return re.findall(r"\[[A-Z_]{4,}[A-Z_.]*\]|\b[\w.]+Exception\b", str(told.value))[0]
