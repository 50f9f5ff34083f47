"""Range joins by name against Spark's own: shapes, join types, types, budgets, chains, and errors."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkext import pipelined_join, report
from sparkext.errors import InvalidJoinError
from tests.api.spark_checks import EXTENSION, KINDS, assert_like_spark, assert_pipelined, assert_same_rows
from tests.support.frames import frame
from tests.support.sessions import configured

ONS: dict[str, list[tuple[str, ...]]] = {
    "a point in an interval": [("at", ">=", "start"), ("at", "<", "stop")],
    "overlap": [("at", "<=", "stop"), ("till", ">=", "start")],
    "one inequality": [("at", ">", "stop")],
    "a band": [("at", ">=", "start"), ("small", "<=", "start")],
    "with equal keys": [("k", "rk"), ("at", ">=", "start"), ("at", "<", "stop")],
    "with null-safe keys": [("k", "<=>", "rk"), ("at", "<", "stop")],
    "other types": [("small", ">=", "start"), ("at", "<", "real")],
}


@pytest.fixture(scope="module")
def points(spark: SparkSession) -> DataFrame:
    generator = random.Random(3)
    at = _column(generator, 50, 0, 60)
    return frame(
        spark,
        3,
        id=list(range(50)),
        at=(pa.int64(), at),
        till=(pa.int64(), [None if a is None else a + generator.randint(-1, 9) for a in at]),
        small=(pa.int16(), _column(generator, 50, 0, 60)),
        k=(pa.int32(), _column(generator, 50, 0, 2)),
    ).cache()


@pytest.fixture(scope="module")
def spans(spark: SparkSession) -> DataFrame:
    generator = random.Random(4)
    start = _column(generator, 40, -5, 65)
    return frame(
        spark,
        2,
        start=(pa.int64(), start),
        stop=(pa.int64(), [None if s is None else s + generator.randint(-2, 12) for s in start]),
        real=(pa.float64(), [None if s is None else s + 0.5 for s in start]),
        rk=(pa.int32(), _column(generator, 40, 0, 2)),
        label=[f"span {number}" for number in range(40)],
    ).cache()


def _column(generator: random.Random, count: int, low: int, high: int) -> list[int | None]:
    return [None if generator.random() < 0.1 else generator.randint(low, high) for _ in range(count)]


@pytest.mark.parametrize("name", ONS)
def test_every_shape(points: DataFrame, spans: DataFrame, name: str) -> None:
    for how in KINDS if name == "with equal keys" else ("inner", "left", "semi", "anti"):
        out, rows = assert_like_spark(points, spans, ONS[name], how)
        assert rows
        assert [join.index for join in report(out).joins[:-1]] == ["range"]


@pytest.mark.parametrize("rows", [1, 2])
def test_tiny_budgets(spark: SparkSession, points: DataFrame, spans: DataFrame, rows: int) -> None:
    with configured(spark, {"spark.sparkext.morsel.maxRows": rows, "spark.sparkext.morsel.minRows": 1}):
        for how in ("left", "anti"):
            assert_like_spark(points, spans, ONS["a point in an interval"], how)


def test_in_a_chain(points: DataFrame, spans: DataFrame) -> None:
    other = spans.toDF("start2", "stop2", "real2", "rk2", "label2")
    equal, ranged = [("k", "rk")], [("at", ">=", "start2"), ("till", "<", "stop2")]
    out = points.transform(pipelined_join(spans, equal)).transform(pipelined_join(other, ranged, "left"))
    assert_pipelined(out, 2)
    expected = points.join(spans, points.k == spans.rk).join(
        other, (points["at"] >= other.start2) & (points["till"] < other.stop2), "left"
    )
    assert assert_same_rows(expected, out)


REFUSED: list[tuple[Any, str, str]] = [
    (
        [("at", ">=", "start"), ("at", "<", "stop"), ("at", "<", "real")],
        "inner",
        "compares 3 columns of the right side",
    ),
    ([("at", "!=", "start")], "inner", "where the operator is one of =, <=>, <, <=, >, >="),
    ([("at", "<", "label")], "inner", "have no common type"),
    ([("at", "<", "begin")], "inner", "right column 'begin' does not exist"),
    ([("att", "<", "start")], "inner", "did you mean 'at'"),
]


@pytest.mark.parametrize(("on", "how", "message"), REFUSED)
def test_what_is_refused(points: DataFrame, spans: DataFrame, on: Any, how: str, message: str) -> None:
    with pytest.raises(InvalidJoinError, match=message.replace("(", r"\(")):
        points.transform(pipelined_join(spans, on, how))


@pytest.mark.parametrize("how", ["right", "full"])
def test_build_rows_are_kept_only_beside_equalities(points: DataFrame, spans: DataFrame, how: str) -> None:
    with pytest.raises(InvalidJoinError, match=f"a {how} join on comparisons needs an equality as well"):
        points.transform(pipelined_join(spans, ONS["overlap"], how))


@pytest.mark.skipif(EXTENSION, reason="there it is Catalyst that has the types")
def test_a_range_without_matches_is_no_error(spark: SparkSession, points: DataFrame) -> None:
    empty = frame(spark, start=(pa.int64(), []), stop=(pa.int64(), []))
    for how in ("inner", "left", "semi", "anti"):
        assert_like_spark(points, empty, ONS["a point in an interval"], how)
