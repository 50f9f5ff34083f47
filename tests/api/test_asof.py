"""`asof_join` against pandas' `merge_asof`: groups, ties, tolerances, directions, unmatched rows; and its errors."""

from __future__ import annotations

import datetime as dt
import random
import time
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import asof_join, pipelined_join, report
from sparkext.errors import BuildSideTooLargeError, InvalidJoinError
from tests.api.spark_checks import assert_pipelined
from tests.support.frames import frame

DAY = dt.timedelta(days=1)
EPOCH = dt.datetime(2024, 3, 9)  # summer time begins on the tenth in the session's time zone


def rows_of(out: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in out.collect())


def merged(left: dict[str, list[Any]], right: dict[str, list[Any]], **options: Any) -> list[tuple[Any, ...]]:
    """Return the result of pandas for the same tables, which it requires sorted; ties keep their order."""
    one, other = pd.DataFrame(left), pd.DataFrame(right)
    how = options.pop("how", "left")
    found = pd.merge_asof(one.sort_values("t", kind="stable"), other.sort_values("t", kind="stable"), on="t", **options)
    if how == "inner":
        found = found[found["w"].notna()]
    return sorted((row.t, row.g, row.v, None if pd.isna(row.w) else int(row.w)) for row in found.itertuples())


def tables(seed: int, distinct: int) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    generator = random.Random(seed)
    left_rows, right_rows = 60, 45

    def times(count: int) -> list[int]:
        return [generator.randrange(distinct) for _ in range(count)]

    def groups(count: int) -> list[str]:
        return [generator.choice("abc") for _ in range(count)]

    left = {"t": times(left_rows), "g": groups(left_rows), "v": list(range(left_rows))}
    right = {"t": times(right_rows), "g": groups(right_rows), "w": list(range(right_rows))}
    return left, right


@pytest.mark.reduced("values", reason="seven seconds each")
@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
@pytest.mark.parametrize("distinct", [8, 300], ids=["many ties", "few ties"])
def test_like_pandas(spark: SparkSession, direction: str, distinct: int) -> None:
    left, right = tables(distinct, distinct)
    for grouped in (True, False):
        other = dict(right) if grouped else {name: right[name] for name in ("t", "w")}
        probe = frame(spark, 3, **left)
        for exact in (True, False):
            for tolerance in (None, 0, 2):
                options = {"direction": direction, "allow_exact_matches": exact, "tolerance": tolerance}
                by = "g" if grouped else None
                for how in ("left", "inner") if exact and tolerance == 2 else ("left",):
                    out = probe.transform(asof_join(pa.table(other), on="t", by=by, how=how, **options))
                    assert out.columns == ["t", "g", "v", "w"]
                    assert rows_of(out) == merged(left, other, by=by, how=how, **options), options
    assert [join.index for join in report(out).joins[:-1]] == ["range"]
    assert_pipelined(probe.transform(asof_join(pa.table(other), on="t")), 1)


VALUES: dict[str, tuple[pa.DataType, list[Any], list[Any], Any, list[Any]]] = {
    # type, left values, right values, tolerance, the matching right value of each left one
    "date": (
        pa.date32(),
        [dt.date(2024, 3, 1), dt.date(2024, 2, 27), None],
        [dt.date(2024, 2, 28), dt.date(2020, 1, 1)],
        2 * DAY,
        [dt.date(2024, 2, 28), None, None],
    ),
    "timestamp": (
        pa.timestamp("us", "America/New_York"),
        [EPOCH + 2 * DAY, EPOCH + DAY, EPOCH],
        [EPOCH + DAY + dt.timedelta(hours=1), EPOCH - dt.timedelta(microseconds=1)],
        DAY,
        [EPOCH + DAY + dt.timedelta(hours=1), None, EPOCH - dt.timedelta(microseconds=1)],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [EPOCH + 2 * DAY, EPOCH + DAY],
        [EPOCH + DAY + dt.timedelta(microseconds=1), EPOCH - dt.timedelta(microseconds=1)],
        DAY,
        [EPOCH + DAY + dt.timedelta(microseconds=1), None],
    ),
    "decimal": (
        pa.decimal128(9, 2),
        [Decimal("1.00"), Decimal("5.00")],
        [Decimal("0.75"), Decimal("-3.00")],
        Decimal("0.25"),
        [Decimal("0.75"), None],
    ),
    "double": (pa.float64(), [1.0, -0.0, float("inf")], [0.75, 0.0, float("inf")], 0.25, [0.75, 0.0, float("inf")]),
    "tinyint": (pa.int8(), [127, -128, 0], [-128, 126], 255, [126, -128, -128]),
}


@pytest.mark.parametrize("name", VALUES)
def test_every_type(spark: SparkSession, name: str) -> None:
    arrow_type, left, right, tolerance, expected = VALUES[name]
    probe = frame(spark, 2, t=(arrow_type, left), n=list(range(len(left))))
    other = frame(spark, 2, s=(arrow_type, right))
    if name == "timestamp_ntz":  # Spark reads Arrow timestamps without a zone as local time
        probe, other = probe.withColumn("t", F.col("t").cast(name)), other.withColumn("s", F.col("s").cast(name))
    out = probe.transform(asof_join(other, on=("t", "s"), tolerance=tolerance))
    typed = pa.array(expected, arrow_type)
    assert out.toArrow().sort_by("n").column("s").combine_chunks().cast(arrow_type).equals(typed)


def test_nulls_match_nothing(spark: SparkSession) -> None:
    probe = frame(spark, 2, t=[1, None, 3], g=["a", "a", None], n=[0, 1, 2])
    other = frame(spark, 2, t=[0, 0, None], g=["a", None, "a"], w=["x", "y", "z"])
    out = probe.transform(asof_join(other, on="t", by=["g"])).orderBy("n")
    assert [row.w for row in out.collect()] == ["x", None, None]


def test_in_a_chain(spark: SparkSession) -> None:
    trades = frame(spark, 2, time=[3, 7, 20], symbol=["a", "b", "a"])
    quotes = frame(spark, 2, quoted=[1, 5, 6], name=["a", "a", "b"], bid=[10, 11, 12])
    names = pa.table({"symbol": ["a", "b"], "long": ["Alpha", "Beta"]})
    asof = asof_join(quotes, on=("time", "quoted"), by=[("symbol", "name")])
    out = trades.transform(asof).filter(F.col("bid") > 0).transform(pipelined_join(names, "symbol"))
    assert rows_of(out.select("time", "quoted", "bid", "long")) == [
        (3, 1, 10, "Alpha"),
        (7, 6, 12, "Beta"),
        (20, 5, 11, "Alpha"),
    ]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"on": "t", "how": "full"}, "is not a join type of as-of joins; expected one of inner"),
    ({"on": "t", "direction": "around"}, "direction='around': expected one of 'backward', 'forward', 'nearest'"),
    ({"on": "t", "tolerance": -1}, "tolerance=-1: expected a whole number of at least 0"),
    ({"on": "t", "tolerance": 1.5}, "tolerance=1.5: expected a whole number"),
    ({"on": "t", "tolerance": DAY}, "expected a whole number"),
    ({"on": "t", "allow_exact_matches": 1}, "expected True or False"),
    ({"on": "u"}, "left column 'u' does not exist"),
    ({"on": ["t"]}, "on holds"),
    ({"on": "t", "by": {"g": 1}}, "by holds"),
    ({"on": "g"}, "does not support distances: expected integers"),
    ({"on": ("t", "t")}, "more than one column named 't'"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_is_refused(spark: SparkSession, arguments: dict[str, Any], message: str) -> None:
    probe = frame(spark, t=[1], g=["a"])
    with pytest.raises(InvalidJoinError, match=message):
        probe.transform(asof_join(pa.table({"t": [1], "g": ["a"]}), **arguments))


@pytest.mark.parametrize(
    ("arrow_type", "tolerance", "matches"),
    [
        (pa.int64(), 10**400, True),
        (pa.float64(), 10**400, True),
        (pa.float64(), float("inf"), True),
        (pa.float64(), 1e300, True),
        (pa.decimal128(10, 2), Decimal("1e999999"), True),
        (pa.decimal128(10, 2), 10**28, True),
        (pa.decimal128(10, 2), Decimal("0.009"), False),
        (pa.float64(), Decimal("sNaN"), None),
        (pa.float64(), float("nan"), None),
        (pa.decimal128(10, 2), Decimal("-0.001"), None),
        (pa.decimal128(10, 2), Decimal("nan"), None),
        (pa.date32(), dt.timedelta(days=-1), None),
    ],
    ids=str,
)
def test_extreme_tolerances(spark: SparkSession, arrow_type: pa.DataType, tolerance: Any, matches: bool | None) -> None:
    """`matches` is None if the tolerance is refused."""
    values = [dt.date(2024, 1, 1), dt.date(2024, 1, 2)] if arrow_type == pa.date32() else [1, 2]
    probe = frame(spark, t=(arrow_type, values[1:]))
    other = pa.table({"s": pa.array(values[:1], arrow_type)})
    joined = asof_join(other, on=("t", "s"), tolerance=tolerance)
    if matches is None:
        with pytest.raises(InvalidJoinError, match="of at least 0"):
            probe.transform(joined)
    else:
        assert probe.transform(joined).filter("s IS NOT NULL").count() == matches


def test_all_problems_are_told_together(spark: SparkSession) -> None:
    probe = frame(spark, t=[1])
    with pytest.raises(InvalidJoinError) as refused:
        probe.transform(asof_join(pa.table({"t": [1]}), on="x", direction="up", how="semi"))
    assert len(refused.value.problems) == 4


def test_a_build_side_that_is_too_large(spark: SparkSession) -> None:
    probe = frame(spark, t=[1])
    with pytest.raises(BuildSideTooLargeError):
        probe.transform(asof_join(pa.table({"t": list(range(1000))}), on="t", max_build_bytes=100))


def test_what_is_no_dataframe() -> None:
    with pytest.raises(InvalidJoinError, match="the left side must be a Spark DataFrame, got int"):
        asof_join(pa.table({"t": [1]}), on="t")(3)  # type: ignore[arg-type]


def test_ties_are_in_the_order_of_rows_whichever_partition_is_first(spark: SparkSession) -> None:
    @F.udf("double")
    def late(number: int) -> float:
        time.sleep(0.7 if number == 0 else 0)
        return 1.0

    other = spark.range(0, 4, 1, 4).select(late("id").alias("t"), F.col("id").alias("w"))
    probe = frame(spark, t=[2.0])
    assert [row.w for row in probe.transform(asof_join(other, on="t")).collect()] == [3]
