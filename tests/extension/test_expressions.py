"""Columnar expressions of workers, compared with Spark: every operator, at the limits of every type."""

from __future__ import annotations

import itertools
import json
import random
from datetime import date
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column as SparkColumn

from sparkext.expressions.arrow_evaluator import ExpressionError, read_failing_values, values
from sparkext.kernels.columns.gather import Column
from sparkext.plans.expressions import expression
from sparkext.plans.expressions.expression import Expression, parse_expression
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.rows.row_set import RowSet
from tests.extension.test_errors import EXTREMES, OPERATIONS
from tests.oracle.rows import canonical
from tests.support.frames import frame
from tests.support.sessions import configured


def decimals(kind: pa.DataType, *texts: str) -> tuple[pa.DataType, list[Any]]:
    return kind, [*map(Decimal, texts), None]


def day_of(day: date) -> int:
    return (day - date(1970, 1, 1)).days


NINES = "9" * 38
RANDOM = random.Random(7)
LONG_DECIMALS = {
    "decimal(38,0)": decimals(pa.decimal128(38, 0), NINES, "-" + NINES, "0", "1", "-3", str(2**63), str(-(2**64))),
    "decimal(38,10)": decimals(
        pa.decimal128(38, 10),
        f"{NINES[:28]}.{NINES[28:]}",
        f"-{NINES[:28]}.{NINES[28:]}",
        "0E-10",
        *("0.0000000001", "-7.5000000000", "12345678901234567890.0987654321", "3.3333333333"),
    ),
    "decimal(20,18)": decimals(
        pa.decimal128(20, 18),
        *(f"99.{NINES[:18]}", f"-99.{NINES[:18]}", f"0.{'0' * 17}1", f"0.{'0' * 18}", f"-1.5{'0' * 17}"),
    ),
    "decimal(18,6)": decimals(
        pa.decimal128(18, 6),
        *("999999999999.999999", "-999999999999.999999", "0.000000", "0.000001", "-2.500000", "3.000000"),
    ),
    "decimal(5,2)": decimals(pa.decimal128(5, 2), "999.99", "-999.99", "0.00", "0.01", "-0.05", "7.00"),
}
TEXTS = [
    "",
    "a",
    "ab",
    "a%b",
    "a_b",
    "a\\b",
    "äöü",
    "日本語",
    "a\nb",
    "😀b",
    "b😀",
    "%",
    "_",
    "\\",
    "  a b ",
    " ",
    "\t ä ",
    None,
]
MALFORMED = [
    bytes(RANDOM.choice(b"\x80\xbf\xc2\xe0\xe2\xed\xf0\xf4\xf5\xffa\xa0\x90") for _ in range(4)) for _ in range(300)
]
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    **{name: given for name, given in EXTREMES.items() if name != "decimal(17,0)"},
    **LONG_DECIMALS,
    "dates": (
        pa.date32(),
        [
            *map(
                day_of, (date(1582, 10, 15), date(1900, 2, 28), date(2000, 2, 29), date(2020, 12, 31), date(2021, 1, 1))
            ),
            *map(day_of, (date(2024, 2, 29), date(2023, 11, 30), date(2100, 3, 1), date(2024, 12, 30))),
            *(-(2**31), -(2**31) + 3, -(2**31) + 400, 2**31 - 1, 2**31 - 40, 106_751_991, 106_751_992, -106_751_992),
            None,
        ],
    ),
    "string": (pa.string(), TEXTS),
    "boolean": (pa.bool_(), [True, False, None]),
    "timestamp": (pa.timestamp("us", "UTC"), [-(2**52), -1, 0, 2**52, None]),
    "doubles": (
        pa.float64(),
        [
            *(2.5, -2.5, 127.99, -128.99, 128.0, 32767.9, 2147483647.5, 2147483648.0, -2147483648.9, -2147483649.0),
            *(9.223372036854775e18, 2.0**63, -(2.0**63), -9.223372036854778e18, 0.49, -0.49, 1e-310, None),
        ],
    ),
    "floats": (pa.float32(), [127.99, -129.0, 32768.0, 2147483520.0, 2.0**31, 2.0**63, -(2.0**63), -0.5, None]),
    "bigints": (
        pa.int64(),
        [
            *(15, 25, -25, 250, 350, 499, 500, -500, 127, 128, -129, 32767, 32768, 2**31 - 1, 2**31, -(2**31) - 1),
            *(2**63 - 1, 2**63 - 8, -(2**63), -(2**63) + 7, 5 * 10**17, 15 * 10**17, 95 * 10**17 // 2, None),
        ],
    ),
    "decimal(17,2)": decimals(
        pa.decimal128(17, 2),
        *(
            "2.50",
            "3.50",
            "-2.50",
            "127.99",
            "128.00",
            "-128.99",
            "2147483647.99",
            "2147483648.00",
            "999999999999999.99",
        ),
    ),
    "decimal(10,10)": decimals(pa.decimal128(10, 10), "0.9999999999", "-0.9999999999", "0.5000000000", "-0.0000000001"),
    "decimal(38,38)": decimals(pa.decimal128(38, 38), f"0.{NINES}", f"-0.{NINES}", f"0.5{'0' * 37}", f"0.{'0' * 37}1"),
}
CASTS = [f"CAST(u AS DECIMAL({digits}))" for digits in ("38, 0", "38, 37", "18, 6", "10, 2", "3, 1", "20, 4", "38, 38")]
FIELDS = ["year", "quarter", "month", "day", "dayofweek", "weekday", "dayofyear", "weekofyear"]
PLACES = (-19, -18, -3, -2, -1, 0, 1, 2, 5, 40)
INTERVALS = ("'1' MONTH", "'-13' MONTH", "'9' YEAR")
MORE = [
    *CASTS,
    *(f"{field}(u)" for field in FIELDS),
    *(f"CAST(u AS {name})" for name in ("TINYINT", "SMALLINT", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")),
    *(f"{name}(u, {places})" for name in ("round", "bround") for places in PLACES),
    *(
        "floor(u)",
        "ceil(u)",
        "floor(u / 7)",
        "pmod(u, 7)",
        "pmod(-7, u)",
        "u % 7.5",
        "1000000 % u",
        "u DIV 7",
        "7 DIV u",
    ),
    *("isnan(u)", "nanvl(u, v)", "nanvl(u / v, v + v)", "pmod(u, v) + u % v", "round(u * v, 1)", "ceil(u + v)"),
    *("add_months(u, 1)", "add_months(u, -25)", "add_months(u, 2147483647)", "add_months(u, month(v))", "last_day(u)"),
    *(f"trunc(u, '{unit}')" for unit in ("year", "YYYY", "quarter", "MM", "Month", "week")),
    *(f"u + INTERVAL {interval}" for interval in INTERVALS),
    *("datediff(last_day(u), trunc(v, 'week'))", "CAST(CAST(u AS DATE) AS TIMESTAMP_NTZ)", "CAST(u > v AS INT)"),
    *("trim(u)", "ltrim(u)", "rtrim(u)", "trim(' a ')", "length(trim(u || '  '))", "trim(BOTH ' ' FROM u)"),
    *("upper(u)", "lower(u)", "upper(u || 'ß')", "lower('ΑΣ' || u)", "lower(u || 'Σ')", "upper('aä') || u"),
    *("u * (1 - v)", "u * (1 + v)", "u + 1.5", "u / 3", "1 / u", "v % u", "u = 0 OR v / u > 1", "u <> 0 AND v / u > 1"),
    *("CASE WHEN u > v THEN u WHEN u < v THEN v ELSE u + v END", "coalesce(u, v, u + v)", "if(u IS NULL, v + v, u)"),
    *("u IN (1, 2, 3)", "u NOT IN (v, NULL)", "u BETWEEN v AND v + v", "greatest(u, v, 1)", "least(v, NULL, u)"),
    *("nullif(u, v)", "coalesce(u / v, v)", "u AND v", "u OR v", "NOT u", "u AND NOT v"),
    *("u || v", "concat(u, '-', v)", "length(u)", "char_length(u || v)", "substring(u, 2)"),
    *(f"substring(u, {place}, {count})" for place in (-3, -1, 0, 1, 2) for count in (-1, 0, 1, 2, 2147483647)),
    *("substring(u, -2147483648, 5)", "substring(u, 2147483647, 5)"),
    *(
        f"u LIKE '{pattern}'"
        for pattern in ("", "a%", "_", "__", "%_", "_%b", "a\\\\%b", "a\\\\_b", "%\\\\\\\\%", "日_語", "😀_")
    ),
    *("u LIKE 'a#_b' ESCAPE '#'", "u LIKE '##%' ESCAPE '#'", "u LIKE 'a\\\\b%' ESCAPE '#'", "u NOT LIKE '%b'"),
    *("u LIKE 'a#b' ESCAPE '#'", "contains(u, 'b')", "startswith(u, 'a')", "endswith(u, 'ü')", "u IN ('a', '日本語')"),
]
"""In addition to `OPERATIONS`. Operations that a type does not have are skipped."""


class Operations:
    """Operations on two columns u and v that Spark resolves, and the expressions that it writes for workers."""

    def __init__(self, spark: SparkSession, pairs: DataFrame, operations: list[str]) -> None:
        jvm = spark._jvm
        assert jvm is not None
        package = jvm.org.apache.spark.sql.sparkext
        evaluator = getattr(getattr(package.expressions, "WorkerEvaluator$Arrow$"), "MODULE$")
        methods = getattr(getattr(jvm.org.json4s.jackson, "JsonMethods$"), "MODULE$")
        place = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        _, u, v = (pairs._jdf.queryExecution().analyzed().output().apply(number) for number in range(3))
        place = place.updated(u, package.joins.ColumnRef(0, 0)).updated(v, package.joins.ColumnRef(0, 1))
        self.names: list[str] = []
        self.sparks: list[Any] = []
        self.nodes: list[Expression] = []
        self._pairs = pairs
        self._catalyst = jvm.org.apache.spark.sql.catalyst.expressions
        self.columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
        for operation in operations:
            try:
                analyzed = pairs.selectExpr(f"{operation} AS value")._jdf.queryExecution().analyzed()
            except (AnalysisException, PySparkException):
                continue  # the type has no such operation
            made = analyzed.expressions().head().child()
            json_tree = evaluator.of(made, place).toOption()
            if json_tree.isDefined():
                self.names.append(operation)
                self.sparks.append(made)
                self.nodes.append(parse_expression(json.loads(methods.compact(json_tree.get()))))

    def truth(self) -> list[tuple[pa.Array, pa.Array]]:
        """Return for each operation its values, null if it fails, and a mask of the failing rows."""
        sql = self._pairs.sparkSession._jvm.org.apache.spark.sql  # type: ignore[union-attr]
        catalyst, columns = sql.catalyst.expressions, sql.classic.ExpressionUtils
        tried = [
            part for each in self.sparks for part in (catalyst.TryEval(each), catalyst.TryEval(catalyst.IsNull(each)))
        ]
        selected = [SparkColumn(columns.column(part)).alias(f"c{number}") for number, part in enumerate(tried)]
        # Otherwise, Spark would compute common subexpressions first, outside of `TryEval`.
        with configured(self._pairs.sparkSession, spark_sql_subexpressionElimination_enabled="false"):
            table = self._pairs.select("i", *selected).orderBy("i").drop("i").toArrow().combine_chunks()
        arrays = [column.chunk(0) for column in table.columns]
        return [(value, null.is_null()) for value, null in zip(arrays[::2], arrays[1::2], strict=True)]


def told(array: pa.Array) -> list[Any]:
    """Return values that are equal exactly if Spark's are; times as integers, because Python's range is smaller."""
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64())
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    return [canonical(value) for value in array.to_pylist()]


def assert_computed(node: Expression, rows: RowSet, expected: pa.Array, failed: pa.Array, name: str) -> None:
    fails = failed.to_numpy(zero_copy_only=False)
    kept = np.flatnonzero(~fails)
    try:
        got = values(node, rows.picked(kept))
    except ExpressionError as error:
        raise AssertionError(f"{name} fails: {read_failing_values(node, rows, int(kept[error.row]))}") from error
    # Spark's type contains the session's time zone.
    assert got.type == expected.type or pa.types.is_timestamp(expected.type), name
    wanted, found = told(expected.take(pa.array(kept))), told(got)
    differing = [(int(row), one, other) for row, one, other in zip(kept, found, wanted, strict=True) if one != other]
    assert not differing, f"{name}: row, workers, Spark: {differing[:5]}"
    for row in np.flatnonzero(fails).tolist():
        with pytest.raises(ExpressionError):
            values(node, rows.picked(np.array([row])))
            raise AssertionError(f"{name} does not fail: {read_failing_values(node, rows, row)}")
    if fails.any():
        with pytest.raises(ExpressionError) as caught:
            values(node, rows)
        assert caught.value.row == int(np.argmax(fails)), name


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_every_operator(spark: SparkSession, name: str, ansi: bool) -> None:
    arrow_type, given = TYPES[name]
    us, vs = (pa.array(side, arrow_type) for side in zip(*itertools.product(given, given), strict=True))
    with configured(spark, **{"spark_sql_ansi_enabled": str(ansi).lower()}):
        pairs = frame(spark, 1, i=range(len(us)), u=us, v=vs)
        operations = Operations(spark, pairs, [*OPERATIONS, *MORE])
        truth = operations.truth()
    assert len(operations.nodes) > 5
    assert not any("try_" in operation for operation in operations.names)
    rows = RowSet.of_morsel([Column.of(us), Column.of(vs)], len(us))
    for node, (expected, failed), operation in zip(operations.nodes, truth, operations.names, strict=True):
        assert_computed(node, rows, expected, failed, f"{operation} of {name}")


OF_TIMES = [
    *("CAST(u AS DATE)", "CAST(CAST(u AS DATE) AS TIMESTAMP)", "CAST(CAST(u AS DATE) AS TIMESTAMP_NTZ)"),
    *("CAST(u AS TIMESTAMP)", "CAST(u AS TIMESTAMP_NTZ)", "year(u)", "datediff(u, v)", "last_day(u)", "u > v"),
]


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
@pytest.mark.parametrize("zone", ["UTC", "Z", "GMT", "Etc/UTC", "+00:00", "Europe/London", "+01:00", "UTC+1"])
def test_times(spark: SparkSession, zone: str, kind: str) -> None:
    """Workers do not evaluate functions that depend on a time zone other than UTC."""
    given = [-(2**52), -1, 0, 1, 86_399_999_999, 86_400_000_000, 2**52, -(2**63), 2**63 - 1, None]
    us, vs = (pa.array(side, pa.timestamp("us", "UTC")) for side in zip(*itertools.product(given, given), strict=True))
    with configured(spark, spark_sql_session_timeZone="UTC"):
        pairs = frame(spark, 1, i=range(len(us)), u=us, v=vs).selectExpr(
            "i", *(f"CAST({side} AS {kind}) AS {side}" for side in "uv")
        )
    with configured(spark, spark_sql_session_timeZone=zone):
        operations = Operations(spark, pairs, OF_TIMES)
        truth = operations.truth()
    is_utc = zone not in ("Europe/London", "+01:00", "UTC+1")
    assert ("CAST(u AS DATE)" in operations.names) == (is_utc or kind == "TIMESTAMP_NTZ")
    assert ("CAST(CAST(u AS DATE) AS TIMESTAMP)" in operations.names) == is_utc
    if kind == "TIMESTAMP_NTZ":
        us, vs = (side.view(pa.timestamp("us")) for side in (us, vs))
    rows = RowSet.of_morsel([Column.of(us), Column.of(vs)], len(us))
    for node, (expected, failed), operation in zip(operations.nodes, truth, operations.names, strict=True):
        assert_computed(node, rows, expected, failed, f"{operation} of {kind} in {zone}")


PAIRS = ["u + v", "u - v", "u * v", "u / v", "u < v", "greatest(u, v)", "u % v", "pmod(u, v)"]


@pytest.mark.parametrize("ansi", [True, False])
def test_decimals_of_every_two_types(spark: SparkSession, ansi: bool) -> None:
    """Result types are limited to 38 digits, which leaves fewer decimal places."""
    kinds = {"decimal(9,2)": EXTREMES["decimal(9,2)"], **LONG_DECIMALS}
    for one, other in itertools.product(kinds, kinds):
        left, right = ([*kinds[name][1]] for name in (one, other))
        us = pa.array([left[row % len(left)] for row in range(len(left) * len(right))], kinds[one][0])
        vs = pa.array([right[row // len(left)] for row in range(len(left) * len(right))], kinds[other][0])
        with configured(spark, **{"spark_sql_ansi_enabled": str(ansi).lower()}):
            pairs = frame(spark, 1, i=range(len(us)), u=us, v=vs)
            operations = Operations(spark, pairs, PAIRS)
            truth = operations.truth()
        assert {"u + v", "u - v", "u * v", "u / v"} <= {*operations.names}
        rows = RowSet.of_morsel([Column.of(us), Column.of(vs)], len(us))
        for node, (expected, failed), operation in zip(operations.nodes, truth, operations.names, strict=True):
            assert_computed(node, rows, expected, failed, f"{operation} of {one} and {other}")


CHARACTERS = [
    "upper(u)",
    "lower(u)",
    "trim(u)",
    "length(u)",
    *(f"substring(u, {place}, {count})" for place in (1, 2, -1, -3) for count in (1, 2, 3)),
]
PATTERNS = [f"u LIKE '{pattern}'" for pattern in ("_", "__", "___", "____", "%a", "_a%", "%_a_%", "%a%", "a%_")]


@pytest.mark.parametrize(("texts", "tail"), [(PATTERNS, b""), (CHARACTERS, b"aaa")], ids=["patterns", "characters"])
def test_texts_that_are_no_characters(spark: SparkSession, texts: list[str], tail: bytes) -> None:
    """Strings from a file may contain any bytes. Python's decoder would count other characters than Java's.

    For a truncated last character, Spark's substrings read bytes beyond the string. `tail` avoids this case.
    """
    given = pa.array([text + tail for text in MALFORMED], pa.binary())
    pairs = frame(spark, 1, i=range(len(given)), b=given).selectExpr("i", "CAST(b AS STRING) AS u", "'a' AS v")
    operations = Operations(spark, pairs, texts)
    assert operations.names == texts
    columns = [SparkColumn(operations.columns.column(made)) for made in operations.sparks]
    columns = [
        column.cast("binary") if "length" not in name and "LIKE" not in name else column
        for column, name in zip(columns, texts, strict=True)
    ]
    named = [column.alias(f"c{number}") for number, column in enumerate(columns)]
    expected = pairs.select("i", *named).orderBy("i").drop("i").toArrow().combine_chunks()
    arrow_texts = pa.Array.from_buffers(pa.string(), len(given), given.buffers())
    rows = RowSet.of_morsel([Column.of(arrow_texts), Column.of(arrow_texts)], len(given))
    for node, name, wanted in zip(operations.nodes, operations.names, expected.columns, strict=True):
        assert told(values(node, rows)) == wanted.to_pylist(), name


SIGMAS = [
    "Σ",
    "ΑΣ",
    "ΑΣΑ",
    "ΣΑ",
    "Α.Σ",
    "ΑΣ.",
    "ΑΣ.Α",
    "1Σ",
    "ΑΣ1Α",
    "Α\u0301Σ\u0301",
    "\u0345Σ",
    "aΣ bΣ'C ΣΣ",
    "ΑΣ\u00adΒ",
]


def test_every_letter(spark: SparkSession) -> None:
    """Also between other letters, because mappings may depend on them."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    given = ["".join(map(chr, codes[start : start + 50])) for start in range(0, len(codes), 50)]
    given += [
        text for code in codes if chr(code).isalpha() and code < 0x2000 for text in (f"aΣ{chr(code)}", f"{chr(code)}Σ")
    ]
    given = [*given, *SIGMAS, *(before + after for before in SIGMAS for after in SIGMAS), None]
    texts = pa.array(given)
    pairs = frame(spark, 1, i=range(len(given)), u=texts, v=texts)
    operations = Operations(spark, pairs, ["upper(u)", "lower(u)"])
    rows = RowSet.of_morsel([Column.of(texts), Column.of(texts)], len(given))
    assert operations.names == ["upper(u)", "lower(u)"]
    for node, (expected, failed), operation in zip(operations.nodes, operations.truth(), operations.names, strict=True):
        assert_computed(node, rows, expected, failed, operation)


def test_letters_of_other_mappings_are_left_to_spark(spark: SparkSession) -> None:
    """Some languages and Java itself have mappings of their own, and collations compare letters without mappings."""
    locale = spark._jvm.java.util.Locale  # type: ignore[union-attr]
    frame_of = ["upper(u)", "lower(v)", "upper(u COLLATE UTF8_LCASE)", "trim(u COLLATE UNICODE_CI)"]
    pairs = frame(spark, 1, i=[1], u=["a"], v=["b"])
    assert Operations(spark, pairs, frame_of).names == frame_of[:2]
    with configured(spark, spark_sql_icu_caseMappings_enabled="false"):
        assert Operations(spark, pairs, frame_of).names == []
    usual = locale.getDefault()
    try:
        locale.setDefault(locale.forLanguageTag("tr-TR"))
        assert Operations(spark, pairs, frame_of).names == []
    finally:
        locale.setDefault(usual)


FAILURES = {
    "s || '}' = 'ü}}' AND s <> '' AND 7 / i > 1": "DIVIDE_BY_ZERO",
    "CAST(d * 10 AS DECIMAL(38, 3))": "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION",
    "if(a IS NULL OR b <> x'c3bc7d', 0, CAST(d AS DECIMAL(5, 0)))": "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION",
    "if(t IS NULL, i - 1 - 9223372036854775807 - 1, i)": "ARITHMETIC_OVERFLOW",
    "i + 1": None,
}


@pytest.mark.parametrize("text", FAILURES)
def test_errors_are_those_that_spark_makes_of_the_values(spark: SparkSession, text: str) -> None:
    """The failing values survive JSON, and Catalyst's expression for the error is evaluated with them."""
    jvm = spark._jvm
    assert jvm is not None
    big = Decimal("9" * 38).scaleb(-3, Context(60))
    types = {
        "i": (pa.int64(), 0),
        "s": (pa.string(), "ü}"),
        "b": (pa.binary(), "ü}".encode()),
        "d": (pa.decimal128(38, 3), big),
        "a": (pa.list_(pa.int8()), [1]),
        "t": (pa.string(), None),
    }
    data = {name: pa.array([value], kind) for name, (kind, value) in types.items()}
    df = spark.createDataFrame(pa.table(data))
    made = df.selectExpr(f"{text} AS value")._jdf.queryExecution().analyzed().expressions().head().child()
    package = jvm.org.apache.spark.sql.sparkext
    pairs = jvm.java.util.ArrayList()
    kinds = ["int64", "string", "binary", "decimal(38,3)", None, "string"]
    read = []
    for number, kind in enumerate(kinds):
        attribute = df._jdf.queryExecution().analyzed().output().apply(number)
        pairs.add(jvm.scala.Tuple2(attribute, package.joins.ColumnRef(0, number)))
        read.append(expression.column(0, number, None if kind is None else parse_key_type(kind)))
    node = expression.condition("and", *(expression.condition("is_null", column) for column in read))
    told = read_failing_values(node, RowSet.of_morsel([Column.of(array) for array in data.values()], 1), 0)
    methods = getattr(getattr(jvm.org.json4s.jackson, "JsonMethods$"), "MODULE$")
    converters = jvm.scala.jdk.javaapi.CollectionConverters
    condition = package.expressions.PairCondition(made, converters.asScala(pairs).toSeq())
    error = condition.error(methods.fromJsonNode(methods.mapper().readTree(json.dumps(told))))
    if FAILURES[text] is None:
        assert "workers cannot evaluate what Spark evaluates to 1" in error.getMessage()
        return
    assert error.getClass().getName().startswith("org.apache.spark"), error.toString()
    assert error.getCondition() == FAILURES[text], error.getMessage()
    with pytest.raises(PySparkException) as caught:
        df.selectExpr(text).collect()
    assert caught.value.getCondition() == FAILURES[text]
