"""`pipelined_join` against Spark's own join: every join type, key type, form of `on`, and random tables."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join
from sparkext.errors import InvalidJoinError
from tests.api.spark_checks import (
    EXTENSION,
    KINDS,
    assert_like_spark,
    assert_pipelined,
    assert_same_rows,
    crossings_of,
    spark_join,
)
from tests.support.frames import frame
from tests.support.sessions import configured

ALIASES = {
    "inner": ("inner", "INNER", "cross", "Cross"),
    "left": ("left", "leftouter", "left_outer", "LeftOuter", "LEFT_OUTER"),
    "right": ("right", "rightouter", "right_outer", "Right"),
    "full": ("full", "outer", "fullouter", "full_outer", "FullOuter", "oUtEr"),
    "semi": ("semi", "leftsemi", "left_semi", "Left_Semi"),
    "anti": ("anti", "leftanti", "left_anti", "ANTI"),
}

NAN = float("nan")
INF = float("inf")


def dec(precision: int, scale: int) -> pa.DataType:
    return pa.decimal128(precision, scale)


def decimals(*texts: str | None) -> list[Decimal | None]:
    return [None if text is None else Decimal(text) for text in texts]


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.timezone.utc)  # type: ignore[misc,arg-type]


class TwoTables:
    """Left and right tables with two keys, the second of which is nullable, and with distinct payload names."""

    def __init__(self, spark: SparkSession) -> None:
        self.left = frame(
            spark,
            parts=3,
            k=[1, 2, 2, None, 5, 6, 6, 8],
            m=["a", None, "b", "c", None, "x", "x", "y"],
            v=list("pqrstuvw"),
        ).cache()
        self.right = frame(
            spark,
            parts=2,
            k=[2, 2, 5, None, 7, 6, 6, 1],
            m=["b", None, None, "c", "z", "x", "x", None],
            w=list("PQRSTUVW"),
        ).cache()
        self.renamed = self.right.select(F.col("k").alias("rk"), F.col("m").alias("rm"), "w").cache()


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> TwoTables:
    return TwoTables(spark)


@pytest.mark.parametrize("kind", KINDS)
def test_every_alias_means_what_spark_means(tables: TwoTables, kind: str) -> None:
    for how in ALIASES[kind]:
        actual = tables.left.transform(pipelined_join(tables.right.drop("m"), on="k", how=how))
        assert actual.schema == tables.left.join(tables.right.drop("m"), "k", how).schema, how
        assert_pipelined(actual, joins=1, crossings=crossings_of(how))
    assert_same_rows(tables.left.join(tables.right.drop("m"), "k", kind), actual)


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "on",
    [
        ["k", "m"],
        ["m", "k"],
        [("k", "rk")],
        [("k", "rk"), ("m", "rm")],
        [("k", "<=>", "rk")],
        [("k", "=", "rk"), ("m", "<=>", "rm")],
        [("m", "<=>", "rm"), ("k", "<=>", "rk")],
    ],
    ids=str,
)
def test_every_form_of_on(tables: TwoTables, kind: str, on: Any) -> None:
    right = tables.right if isinstance(on[0], str) else tables.renamed
    _, rows = assert_like_spark(tables.left, right, on, kind)
    assert rows, "no row: this proves nothing"


def test_cross_without_keys(tables: TwoTables) -> None:
    _, rows = assert_like_spark(tables.left, tables.renamed, None, "cross")
    assert rows.total() == 64


def test_using_keeps_the_names_of_the_right_sides(spark: SparkSession) -> None:
    """USING finds names in any case; the join type determines whose spelling the result has."""
    left = frame(spark, Key=[1, 2, None], v=[1, 2, 3])
    right = frame(spark, KEY=[2, 3, None], w=[4, 5, 6])
    for kind in KINDS:
        assert_like_spark(left, right, "kEy", kind)


def test_nullability_and_metadata(spark: SparkSession) -> None:
    """NOT NULL columns remain so, unless the join makes them nullable. Metadata equals that of Spark's join."""
    left = spark.range(6).select(
        F.col("id").alias("k", metadata={"about": "left"}), F.lit(1).alias("v", metadata={"unit": "m"})
    )
    right = spark.range(3, 9).select(
        F.col("id").alias("k", metadata={"about": "right"}), F.lit("x").alias("w", metadata={"unit": "s"})
    )
    assert not left.schema["k"].nullable
    for kind in KINDS:
        assert_like_spark(left, right, "k", kind)
        assert_like_spark(left, right.withColumnRenamed("k", "rk"), [("k", "rk")], kind)


def test_join_nullable_with_not_null_keys(spark: SparkSession) -> None:
    nullable = frame(spark, k=(pa.int64(), [1, None, 3]), v=[1, 2, 3])
    certain = spark.range(5).select(F.col("id").alias("k"), F.lit(True).alias("w"))
    for kind in KINDS:
        assert_like_spark(nullable, certain, "k", kind)
        assert_like_spark(certain, nullable, "k", kind)


# Two columns of keys: values of the left and of the right side, with duplicates, nulls and unmatched values on both.
KEY_TYPES: dict[str, tuple[pa.DataType, list[Any], pa.DataType, list[Any]]] = {
    **{
        f"int{bits}": (
            getattr(pa, f"int{bits}")(),
            [-(2 ** (bits - 1)), -1, 0, 0, 1, None, 2 ** (bits - 1) - 1],
            getattr(pa, f"int{bits}")(),
            [-(2 ** (bits - 1)), 0, 0, 2, None, None, 2 ** (bits - 1) - 1],
        )
        for bits in (8, 16, 32, 64)
    },
    "dense int64": (pa.int64(), [1, 2, 3, 3, None, 9, 0], pa.int64(), [3, 4, 5, 1, 3, None, 8]),
    "int8 with int64": (pa.int8(), [-128, 1, 1, None, 5], pa.int64(), [-128, 1, 257, None, 2**40 + 1]),
    "int64 with int16": (pa.int64(), [65537, 1, -1, None, 2**40], pa.int16(), [1, -1, 0, None, 7]),
    "int32 with int16": (pa.int32(), [65537, 1, -1, None, 7], pa.int16(), [1, -1, 0, None, 7]),
    "int32 with double": (pa.int32(), [0, 1, 2, None, -3], pa.float64(), [-0.0, 1.0, 1.5, None, NAN]),
    "int64 with double": (
        pa.int64(),
        [2**53, 2**53 + 1, 0, None, 2**63 - 1],
        pa.float64(),
        [2.0**53, -0.0, 2.0**63, None, INF],
    ),
    "double with int64": (
        pa.float64(),
        [2.0**53, -0.0, 2.0**63, None, NAN],
        pa.int64(),
        [2**53, 2**53 + 1, 0, None, 2**63 - 1],
    ),
    "float": (pa.float32(), [0.0, -0.0, NAN, 1.5, None, INF, -INF], pa.float32(), [-0.0, NAN, NAN, None, 2.5, -INF]),
    "double": (pa.float64(), [0.0, -0.0, NAN, 1.5, None, INF], pa.float64(), [-0.0, 0.0, NAN, None, 5e-324, -INF]),
    "float with double": (pa.float32(), [0.1, 0.5, -0.0, NAN, None], pa.float64(), [0.1, 0.5, 0.0, NAN, None]),
    "double with float": (pa.float64(), [0.1, 0.5, -0.0, NAN, None], pa.float32(), [0.1, 0.5, 0.0, NAN, None]),
    "decimal": (
        dec(10, 2),
        decimals("1.00", "-1.50", "99999999.99", "0.00", None, "1.00"),
        dec(10, 2),
        decimals("1.00", "-1.50", "2.00", None, "0.00"),
    ),
    "decimal of two scales": (
        dec(10, 2),
        decimals("1.00", "-1.50", "1.23", None, "7.00"),
        dec(12, 5),
        decimals("1.00000", "-1.50000", "1.23001", None, "7.00000"),
    ),
    "decimal of 38 digits": (
        dec(38, 4),
        decimals("1234567890123456789012345678901234.5678", "-1.0000", "0.0000", None),
        dec(38, 4),
        decimals("1234567890123456789012345678901234.5678", "-1.0001", "0.0000", None),
    ),
    "decimal of 18 with 20 digits": (
        dec(18, 0),
        decimals("999999999999999999", "-5", "0", None),
        dec(20, 2),
        decimals("999999999999999999.00", "-5.00", "-5.01", None),
    ),
    "int32 with decimal": (pa.int32(), [1, -2, 3, None], dec(7, 2), decimals("1.00", "-2.00", "3.50", None)),
    "decimal with int64": (dec(22, 1), decimals("1.0", "-2.0", "3.5", None), pa.int64(), [1, -2, 3, None]),
    "bool": (pa.bool_(), [True, False, True, None], pa.bool_(), [False, False, None, None]),
    "date": (
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), None, dt.date(9999, 12, 31)],
        pa.date32(),
        [dt.date(1, 1, 1), dt.date(1970, 1, 1), dt.date(2024, 2, 29), None],
    ),
    "timestamp": (
        pa.timestamp("us", tz="UTC"),
        [utc(2024, 3, 10, 7, 0), utc(2024, 11, 3, 6, 30), utc(1900, 1, 1), None],
        pa.timestamp("us", tz="UTC"),
        [utc(2024, 3, 10, 7, 0), utc(2024, 11, 3, 5, 30), utc(1900, 1, 1), None],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1900, 1, 1), dt.datetime(2024, 1, 1), None],
        pa.timestamp("us"),
        [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1900, 1, 1, 0, 0, 1), dt.datetime(2024, 1, 1), None],
    ),
    "interval": (
        pa.duration("us"),
        [dt.timedelta(days=1), dt.timedelta(microseconds=-1), None],
        pa.duration("us"),
        [dt.timedelta(hours=24), dt.timedelta(0), None],
    ),
    "string": (
        pa.string(),
        ["", "a", "a\0", "ä", "ab" * 40, None, "a", "A"],
        pa.string(),
        ["", "a", "a\0b", "ä", "ab" * 40, None, None, "a "],
    ),
    "binary": (
        pa.binary(),
        [b"", b"\0", b"\0\0", b"\xff", None, b"\xff"],
        pa.binary(),
        [b"", b"\0", b"\xff\xfe", b"\xff", None],
    ),
    "all null on the left": (pa.int64(), [None] * 4, pa.int64(), [1, None, 2]),
    "all null on the right": (pa.string(), ["a", None, "b"], pa.string(), [None] * 4),
    "all null on both": (pa.float64(), [None] * 3, pa.float64(), [None] * 2),
}


@pytest.mark.parametrize("name", KEY_TYPES)
def test_every_key_type(spark: SparkSession, name: str) -> None:
    """A full join shows matches and the unmatched rows of both sides, and requires equal keys in the same partition."""
    left_type, left_keys, right_type, right_keys = KEY_TYPES[name]
    # Otherwise, Spark reads timestamps without a zone as local time.
    zoneless = "TIMESTAMP_NTZ" if name == "timestamp_ntz" else "TIMESTAMP_LTZ"
    with configured(spark, {"spark.sql.timestampType": zoneless}):
        left = frame(spark, k=(left_type, left_keys), v=list(range(len(left_keys))))
        right = frame(spark, k=(right_type, right_keys), w=list(range(100, 100 + len(right_keys))))
    renamed = right.withColumnRenamed("k", "rk")
    assert_like_spark(left, right, "k", "full")
    assert_like_spark(left, renamed, [("k", "<=>", "rk")], "right", algorithm="sort_merge")
    assert_like_spark(left, renamed, [("k", "rk")], "left", algorithm="hash")


COMPOSITES: dict[str, tuple[list[Any], list[Any]]] = {
    "int8 and int16 in one word": ([(pa.int8(), [1, 1, None, -1]), (pa.int16(), [1, -1, 3, None])],) * 2,
    "two int32 in one word": (
        [(pa.int32(), [1, -1, None, 2]), (pa.int32(), [-1, 1, 3, None])],
        [(pa.int32(), [1, 1, None, 2]), (pa.int32(), [-1, 1, 3, None])],
    ),
    "int64 and int32": (
        [(pa.int64(), [1, 1, None, 2]), (pa.int32(), [1, 2, 3, 4])],
        [(pa.int64(), [1, 1, None, 2]), (pa.int32(), [1, 3, 3, 4])],
    ),
    "string and string": (
        [(pa.string(), ["a", "ab", None, ""]), (pa.string(), ["bc", "c", "x", ""])],
        [(pa.string(), ["ab", "a", None, ""]), (pa.string(), ["c", "bc", "x", None])],
    ),
    "string, double and decimal": (
        [
            (pa.string(), ["a", "b", "b", None]),
            (pa.float64(), [-0.0, NAN, 1.0, 1.0]),
            (dec(30, 3), decimals("1.000", "2.000", None, "4.000")),
        ],
        [
            (pa.string(), ["a", "b", "b", None]),
            (pa.float64(), [0.0, NAN, 1.0, 1.0]),
            (dec(30, 3), decimals("1.000", "2.000", None, "4.000")),
        ],
    ),
    "bool, date and binary": (
        [
            (pa.bool_(), [True, False, None, True]),
            (pa.date32(), [dt.date(2024, 1, day) for day in (1, 2, 3, 4)]),
            (pa.binary(), [b"", b"x", b"y", None]),
        ],
    )
    * 2,
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composite_keys(spark: SparkSession, name: str) -> None:
    sides = []
    for prefix, columns in zip("lr", COMPOSITES[name], strict=True):
        keys = {f"{prefix}{number}": column for number, column in enumerate(columns)}
        sides.append(frame(spark, **keys, **{f"{prefix}_row": list(range(4))}))
    width = len(COMPOSITES[name][0])
    plain = [(f"l{number}", f"r{number}") for number in range(width)]
    safe = [(f"l{number}", "<=>", f"r{number}") for number in range(width)]
    mixed = [safe[0], *plain[1:]]
    assert_like_spark(*sides, plain, "full")
    assert_like_spark(*sides, safe, "full", algorithm="sort_merge")
    assert_like_spark(*sides, mixed, "left")


def payload_columns() -> dict[str, str]:
    """Return SQL expressions of every supported type, computed from `id`: null for multiples of 5."""
    return {
        "struct": "named_struct('a', id, 'b', array(id, null), 'c', named_struct('d', cast(id as string)))",
        "array": "transform(sequence(0, id % 3), x -> if(x = 1, null, cast(x as string)))",
        "array_of_structs": "array(named_struct('x', id, 'y', cast(id as decimal(20,3))), null)",
        "map": "map(id, 'a', id + 1, null)",
        "map_of_arrays": "map(cast(id as string), array(id, id))",
        "binary": "cast(cast(id as string) as binary)",
        "nothing": "cast(null as int)",
        "void": "null",
        "decimal": "cast(id as decimal(38, 10))",
        "small_decimal": "cast(id as decimal(5, 2))",
        "timestamp": "timestamp'2024-03-10 01:59:59' + make_dt_interval(0, id)",
        "ntz": "timestamp_ntz'2024-03-10 02:30:00' + make_dt_interval(0, id)",
        "date": "date'2024-02-27' + cast(id as int)",
        "day_time": "make_dt_interval(id, 1, 2, 3.5)",
        "double": "if(id % 2 = 0, double('nan'), -0.0D)",
        "boolean": "id % 2 = 0",
        "long_string": "repeat(cast(id as string), 50)",
        "constant": "'always'",
        "tiny": "cast(id as tinyint)",
        "variant": "parse_json(concat('{\"a\": ', id, '}'))",
    }


def test_payload_of_every_type(spark: SparkSession) -> None:
    """On both sides, with nulls, and with unmatched rows."""
    expressions = payload_columns()
    never_null = {"constant", "nothing", "void"}

    def side(prefix: str, first: int) -> DataFrame:
        columns = [
            f"{sql if name in never_null else f'if(id % 5 = 0, null, {sql})'} as {prefix}_{name}"
            for name, sql in expressions.items()
        ]
        return spark.range(first, first + 12).selectExpr("id % 9 as k", *columns)

    for kind in KINDS:
        left, right = side("l", 1), side("r", 7)
        assert_like_spark(left, right, "k", kind)
    with configured(spark, {"spark.sql.execution.arrow.useLargeVarTypes": "true"}):
        assert_like_spark(side("l", 1), side("r", 7), "k", "full")


def test_nested_nullability_stays(spark: SparkSession) -> None:
    """`array(id)` cannot contain nulls: containsNull, valueContainsNull and nested fields are part of the schema."""
    expressions = ["array(id) as {0}a", "map(id, id) as {0}m", "named_struct('x', id, 'y', array(array(id))) as {0}s"]
    left = spark.range(4).selectExpr("id as k", *(text.format("l") for text in expressions))
    right = spark.range(2, 6).selectExpr("id as k", *(text.format("r") for text in expressions))
    for kind in ("inner", "full"):
        assert_like_spark(left, right, "k", kind)


@pytest.mark.parametrize(
    "sql",
    [
        "parse_json('[1]')",
        "named_struct('a', 1, 'b', array(1))",
        "array(named_struct('a', 1))",
        "map('x', named_struct('a', 1))",
        "named_struct('a', named_struct())",
    ],
)
def test_a_null_struct_whose_fields_cannot_be_null(spark: SparkSession, sql: str) -> None:
    left = spark.range(6).selectExpr("id as k", f"if(id = 3, null, {sql}) as l", f"{sql} as ll")
    right = spark.range(3, 9).selectExpr("id as k", f"if(id = 4, null, {sql}) as r", f"{sql} as rr")
    for kind in ("inner", "left", "right"):
        assert_like_spark(left, right, "k", kind)


def test_arrays_of_nothing_are_declined(spark: SparkSession) -> None:
    """PySpark has no Arrow type for `array()`, whose elements are void and NOT NULL."""
    left = spark.range(3).selectExpr("id as k", "array() as l")
    with pytest.raises(InvalidJoinError, match="left column 'l' of type array<void> cannot be passed"):
        left.transform(pipelined_join(spark.range(3).selectExpr("id as k"), "k"))


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_session_time_zones(spark: SparkSession, zone: str) -> None:
    with configured(spark, {"spark.sql.session.timeZone": zone}):
        left = spark.range(4).selectExpr("timestamp'2024-11-03 01:30:00' + make_dt_interval(0, id) as t", "id as v")
        right = spark.range(2, 6).selectExpr(
            "timestamp'2024-11-03 01:30:00' + make_dt_interval(0, id) as t",
            "timestamp'1900-01-01 00:00:00' as old",
            "timestamp_ntz'1900-01-01 00:00:00' as ntz",
        )
        assert_like_spark(left, right, "t", "full")


# Random tables.

SEED = 20_240_229


def _random_key_makers() -> dict[str, tuple[pa.DataType, Callable[[random.Random, int], Any]]]:
    floats = [0.0, -0.0, NAN, INF, 1.5, -2.5, 1e300, 5e-324]
    return {
        "int8": (pa.int8(), lambda r, n: r.randrange(n) - 1),
        "int32": (pa.int32(), lambda r, n: r.randrange(n) * 1_000_003 - 5),
        "int64": (pa.int64(), lambda r, n: r.choice([-1, 1]) * (r.randrange(n) << 45)),
        "dense": (pa.int64(), lambda r, n: 10**12 + r.randrange(n)),
        "double": (pa.float64(), lambda r, n: r.choice(floats[: max(1, min(n, 8))])),
        "float": (pa.float32(), lambda r, n: r.choice(floats[: max(1, min(n, 6))])),
        "bool": (pa.bool_(), lambda r, n: r.random() < 0.5),
        "date": (pa.date32(), lambda r, n: dt.date(2024, 1, 1) + dt.timedelta(days=r.randrange(n))),
        "timestamp": (pa.timestamp("us", tz="UTC"), lambda r, n: utc(2024, 1, 1) + dt.timedelta(hours=r.randrange(n))),
        "decimal": (dec(12, 3), lambda r, n: Decimal(r.randrange(n)).scaleb(-1).quantize(Decimal("0.001"))),
        "wide decimal": (dec(30, 2), lambda r, n: Decimal(10**25 + r.randrange(n)).quantize(Decimal("0.01"))),
        "string": (pa.string(), lambda r, n: ["", "a", "aa", "b", "ä", "é" * 9, "a" * 20][r.randrange(min(n, 7))]),
        "binary": (pa.binary(), lambda r, n: bytes([r.randrange(n)]) * r.randrange(3)),
    }


KEY_MAKERS = _random_key_makers()


def random_case(seed: int) -> dict[str, Any]:
    """Return the parameters of a random join as plain data that a failure can print."""
    r = random.Random(seed)
    width = r.choice([1, 1, 1, 2, 3])
    types = [r.choice(list(KEY_MAKERS)) for _ in range(width)]
    distinct = r.choice([1, 2, 4, 8, 40])
    sides = []
    for _ in range(2):
        rows = r.choice([0, 1, 2, 3, 7, 20, 60])
        null_rate = r.choice([0, 0, 0.1, 0.5, 1])
        keys = [
            [None if r.random() < null_rate else KEY_MAKERS[name][1](r, distinct) for _ in range(rows)]
            for name in types
        ]
        sides.append({"keys": keys, "rows": rows, "parts": r.choice([1, 1, 2, 5])})
    form = r.choice(["using", "pairs", "safe", "mixed"])
    return {
        "seed": seed,
        "types": types,
        "sides": sides,
        "form": form,
        "how": r.choice(KINDS),
        "algorithm": r.choice(["auto", "hash", "sort_merge"]),
        "settings": {
            "spark.sql.execution.arrow.maxRecordsPerBatch": r.choice([1, 3, 10_000]),
            "spark.sparkext.morsel.maxRows": r.choice([1, 5, 131_072]),
            "spark.sparkext.debug.hashMask": r.choice(["0x0", "0xff", "0xffffffffffffffff"]),
            "spark.sql.adaptive.enabled": r.choice(["true", "false"]),
        },
    }


def _random_frame(spark: SparkSession, case: dict[str, Any], side: int) -> DataFrame:
    names = [f"k{n}" if case["form"] == "using" else f"{'lr'[side]}{n}" for n in range(len(case["types"]))]
    columns: dict[str, Any] = {
        name: (KEY_MAKERS[key_type][0], keys)
        for name, key_type, keys in zip(names, case["types"], case["sides"][side]["keys"], strict=True)
    }
    rows = case["sides"][side]["rows"]
    columns["lr"[side] + "_row"] = (pa.int32(), list(range(rows)))
    columns["lr"[side] + "_text"] = (pa.string(), [None if row % 3 == 0 else "x" * (row % 5) for row in range(rows)])
    parts = case["sides"][side]["parts"]
    return frame(spark, parts=None if parts == 1 else parts, **columns)


def _random_on(case: dict[str, Any]) -> Any:
    numbers = range(len(case["types"]))
    if case["form"] == "using":
        return [f"k{n}" for n in numbers]
    safe = {"pairs": lambda n: False, "safe": lambda n: True, "mixed": lambda n: n % 2 == 0}[case["form"]]
    return [(f"l{n}", "<=>" if safe(n) else "=", f"r{n}") for n in numbers]


@pytest.mark.parametrize("first", range(0, 20 if EXTENSION else 40, 10))
def test_random_tables(spark: SparkSession, first: int) -> None:
    """Ten random joins: types, key types, duplicates, null rates, batch sizes, budgets, algorithms, hash masks."""
    for seed in range(SEED + first, SEED + first + 10):
        case = random_case(seed)
        with configured(spark, case["settings"]):
            left, right, on = _random_frame(spark, case, 0), _random_frame(spark, case, 1), _random_on(case)
            try:
                actual = left.transform(pipelined_join(right, on, case["how"], algorithm=case["algorithm"]))
                assert_pipelined(actual, joins=1, crossings=crossings_of(case["how"]))
                assert_same_rows(spark_join(left, right, on, case["how"]), actual)
            except Exception as error:
                pytest.fail(f"seed {seed}: {error}\nfailing input: {case}", pytrace=False)


@pytest.mark.parametrize("first", range(0, 12, 6))
def test_random_chains(spark: SparkSession, first: int) -> None:
    """Two or three random joins in one pipeline; later keys are from the probe side or from an earlier build side."""
    for seed in range(SEED + first, SEED + first + 6):
        r = random.Random(-seed)
        distinct = r.choice([2, 5, 12])
        keys = [r.choice([None, *range(distinct)]) for _ in range(r.choice([0, 5, 40]))]
        left = frame(spark, k=(pa.int64(), keys))
        left = left.withColumn("row", F.monotonically_increasing_id())
        expected = actual = left.cache()
        steps = []
        names = ["k"]
        for number in range(r.choice([2, 3])):
            rows = r.choice([0, 1, 5, 15])
            right = frame(
                spark,
                **{
                    f"key{number}": (pa.int64(), [r.choice([None, *range(distinct)]) for _ in range(rows)]),
                    f"next{number}": (pa.int64(), [r.choice([None, *range(distinct)]) for _ in range(rows)]),
                },
            )
            on = [(r.choice(names), r.choice(["=", "<=>"]), f"key{number}")]
            how = r.choice(["inner", "left", "semi", "anti", "left", "inner"])
            algorithm = r.choice(["hash", "sort_merge"])
            steps.append((on, how, algorithm, rows))
            expected = spark_join(expected, right, on, how)
            actual = actual.transform(pipelined_join(right, on, how, algorithm=algorithm))
            if how in ("inner", "left"):
                names += [f"key{number}", f"next{number}"]
        with configured(spark, {"spark.sparkext.morsel.maxRows": r.choice([1, 3, 131_072])}):
            try:
                assert_pipelined(actual, joins=len(steps), crossings=1)
                assert_same_rows(expected, actual)
            except Exception as error:
                pytest.fail(f"seed {seed}: {error}\nsteps: {steps}", pytrace=False)
