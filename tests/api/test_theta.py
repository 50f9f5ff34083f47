"""`theta_join` against Spark's own nested loops: join types, types, nulls, budgets, chains; refusals and errors."""

from __future__ import annotations

import datetime as dt
import functools
import math
import operator
import random
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numba
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join, report, theta_join
from sparkext.errors import BuildSideTooLargeError, InvalidJoinError
from tests.api.spark_checks import EXTENSION, assert_pipelined, assert_same_rows, jobs_run_by
from tests.support.frames import frame
from tests.support.sessions import configured

KINDS = ("inner", "left", "semi", "anti")
HOUR = 3600 * 10**6
Predicate = Callable[[Any, Any], bool]

# Functions create the predicates: workers cannot import this module, so predicates must be pickled by value.


def checked(out: DataFrame, expected: DataFrame) -> int:
    """Assert that workers tested all pairs in one pass with Spark's result; return the number of rows."""
    assert_pipelined(out, joins=1)
    rows = assert_same_rows(expected, out).total()
    assert [join.index for join in report(out).joins] == ["all rows", None]
    return rows


def column(generator: random.Random, count: int, high: int) -> list[float | None]:
    return [None if generator.random() < 0.1 else generator.randrange(high) / 4 for _ in range(count)]


@pytest.fixture(scope="module")
def points(spark: SparkSession) -> DataFrame:
    generator = random.Random(1)
    x, y = column(generator, 50, 80), column(generator, 50, 80)
    return frame(spark, 3, x=x, y=y, id=list(range(50))).cache()


@pytest.fixture(scope="module")
def circles(spark: SparkSession) -> DataFrame:
    generator = random.Random(2)
    u, v, radius = (column(generator, 30, high) for high in (80, 80, 20))
    return frame(spark, 2, u=u, v=v, radius=radius, name=[f"c{number}" for number in range(30)]).cache()


@pytest.fixture(scope="module")
def near() -> Predicate:
    def near(left: Any, right: Any) -> bool:
        across, along = left.x - right.u, left.y - right.v
        return across * across + along * along < right.radius * right.radius

    return near


def near_in_spark(points: DataFrame, circles: DataFrame) -> Column:
    across, along = points.x - circles.u, points.y - circles.v
    return across * across + along * along < circles.radius * circles.radius


@pytest.mark.parametrize("how", KINDS)
def test_like_spark(points: DataFrame, circles: DataFrame, near: Predicate, how: str) -> None:
    out = points.transform(theta_join(circles, near, how=how))
    assert checked(out, points.join(circles, near_in_spark(points, circles), how)) > 5
    told = report(out).joins[0]
    assert (told.operator, told.rows_in) == (f"{how} by near", 50)


def test_one_row_at_a_time(spark: SparkSession, points: DataFrame, circles: DataFrame, near: Predicate) -> None:
    rows = {"spark.sql.execution.arrow.maxRecordsPerBatch": 9, "spark.sparkext.morsel.maxRows": 1}
    with configured(spark, rows):
        out = points.transform(theta_join(circles, near, how="left"))
        checked(out, points.join(circles, near_in_spark(points, circles), "left"))
    assert report(out).joins[0].budget_max == 1


def every_type(spark: SparkSession, prefix: str, rows: int) -> DataFrame:
    generator = random.Random(prefix)
    start = dt.datetime(2024, 3, 9)
    instants = [start + dt.timedelta(hours=generator.randrange(48), microseconds=n) for n in range(rows)]
    columns: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
        "tiny": (pa.int8(), lambda n: generator.randrange(-128, 128)),
        "small": (pa.int16(), lambda n: generator.randrange(-(2**15), 2**15)),
        "whole": (pa.int32(), lambda n: generator.randrange(-(2**31), 2**31)),
        "big": (pa.int64(), lambda n: generator.randrange(-(2**62), 2**62)),
        "single": (pa.float32(), lambda n: generator.gauss(0, 1)),
        "double": (pa.float64(), lambda n: generator.gauss(0, 1)),
        "flag": (pa.bool_(), lambda n: generator.random() < 0.5),
        "day": (pa.date32(), lambda n: dt.date(1969, 12, 1) + dt.timedelta(days=generator.randrange(60))),
        "at": (pa.timestamp("us", "America/New_York"), lambda n: instants[n]),
        "local": (pa.timestamp("us"), lambda n: instants[-n]),
        "span": (pa.duration("us"), lambda n: dt.timedelta(microseconds=generator.randrange(-5, 5))),
    }
    made = {
        prefix + name: (kind, [None if generator.random() < 0.03 else make(n) for n in range(rows)])
        for name, (kind, make) in columns.items()
    }
    made[prefix + "text"] = (pa.string(), [f"row {n}" for n in range(rows)])
    local = prefix + "local"  # Spark reads Arrow timestamps without a zone as local time
    return frame(spark, 2, **made).withColumn(local, F.col(local).cast("timestamp_ntz"))


def test_every_type(spark: SparkSession) -> None:
    """Numbers, and types that are sent as numbers: booleans as 0 and 1, dates as days, times as microseconds."""

    def agree(left: Any, right: Any) -> bool:
        votes = (left.a_tiny < right.b_tiny) + (left.a_small <= right.b_small) + (left.a_whole > right.b_whole)
        votes += (left.a_big >= right.b_big) + (left.a_single < right.b_single) + (left.a_double > right.b_double)
        votes += (left.a_flag != right.b_flag) + (left.a_day - right.b_day > 7) + (left.a_span == right.b_span)
        return votes + (left.a_at - right.b_at < 3 * HOUR) + (left.a_local <= right.b_local) >= 7

    left, right = every_type(spark, "a_", 60), every_type(spark, "b_", 50)

    def a(name: str) -> Column:
        return left[f"a_{name}"]

    def b(name: str) -> Column:
        return right[f"b_{name}"]

    terms = [a("tiny") < b("tiny"), a("small") <= b("small"), a("whole") > b("whole"), a("big") >= b("big")]
    terms += [a("single") < b("single"), a("double") > b("double"), a("flag") != b("flag"), a("span") == b("span")]
    terms += [F.datediff(a("day"), b("day")) > 7, a("local") <= b("local")]
    terms += [F.unix_micros(a("at")) - F.unix_micros(b("at")) < 3 * HOUR]
    votes = functools.reduce(operator.add, [term.cast("int") for term in terms])
    out = left.transform(theta_join(right, agree, how="left"))
    assert checked(out, left.join(right, votes >= 7, "left")) > 100


def test_what_a_predicate_may_call(points: DataFrame, circles: DataFrame) -> None:
    """Columns that only a helper function reads are found as well."""
    most = 3.5

    def beside(left: Any, right: Any) -> bool:
        return abs(left.x - right.u) < most

    tools = ModuleType("tools")
    tools.beside = helper = numba.njit(beside)  # type: ignore[attr-defined]

    def low(left: Any, right: Any) -> bool:
        return left.y < 10 and helper(left, right)

    right = circles.select("u")
    out = points
    for predicate in (beside, low, helper):
        out = out.transform(theta_join(right, predicate, how="semi"))
    assert_pipelined(out, joins=3)
    condition = (F.abs(points.x - right.u) < most) & (points.y < 10)
    assert assert_same_rows(points.join(right, condition, "semi"), out)
    assert points.transform(theta_join(right, lambda left, right: tools.beside(left, right))).columns


def test_in_a_chain(spark: SparkSession, points: DataFrame, circles: DataFrame) -> None:
    """The predicate reads columns of an earlier build side, which are null for unmatched rows. A last join follows."""
    weights = frame(spark, id=list(range(0, 50, 2)), weight=[n % 7 for n in range(25)])
    colours = pa.table({"name": ["c1", "c2", "c3", "c9"], "colour": ["red", "green", "blue", "black"]})

    def heavy(left: Any, right: Any) -> bool:
        return left.weight > right.radius and left.y > right.v

    out = points.transform(pipelined_join(weights, "id", "left")).transform(theta_join(circles, heavy, how="left"))
    out = out.transform(pipelined_join(colours, "name"))
    expected = points.join(weights, "id", "left")
    condition = (expected.weight > circles.radius) & (expected.y > circles.v)
    expected = expected.join(circles, condition, "left").join(spark.createDataFrame(colours), "name")
    if not EXTENSION:
        assert_pipelined(out, joins=3)
    assert assert_same_rows(expected.select(out.columns), out).total() > 5
    assert "all rows" in [join.index for join in report(out).joins]


def test_empty_sides(points: DataFrame, circles: DataFrame, near: Predicate) -> None:
    condition = near_in_spark(points, circles)
    for left, right, how in ((points.where("x > 1000"), circles, "left"), (points, circles.where("u > 1000"), "anti")):
        out = left.transform(theta_join(right, near, how=how))
        assert_same_rows(left.join(right, condition, how), out)


def test_a_predicate_that_looks_at_nothing(points: DataFrame, circles: DataFrame) -> None:
    """All pairs match: a column that is not read cannot exclude rows by its nulls."""
    out = points.transform(theta_join(circles, lambda left, right: True))
    assert checked(out, points.crossJoin(circles)) == 1500


def test_names_of_any_spelling_come_out(spark: SparkSession) -> None:
    names = ["x", "a b", "class", "_x", "a.b", "ünï", "count", "index"]
    left, right = (frame(spark, **{side + name: [1, 2, 3] for name in names}) for side in ("", "r "))
    right = right.withColumnsRenamed({"r x": "y", "r ünï": "ÿ"})
    out = left.transform(
        theta_join(right, lambda one, two: one.x + one.ünï + one.count + one.index < two.y + two.ÿ + 1)
    )
    assert out.columns == left.columns + right.columns
    assert sorted((row.x, row.y) for row in out.collect()) == [(1, 2), (1, 3)]


@pytest.fixture
def ones(spark: SparkSession) -> DataFrame:
    return spark.range(1).selectExpr(
        "id as x", "'text' as s", "1.5BD as price", "id as `a b`", "id as _x", "id > 0 as f"
    )


def problem(left: DataFrame, predicate: Any, other: Any = None, **options: Any) -> str:
    """Return the message of a call that is refused without a job."""
    raised: list[InvalidJoinError] = []

    def call() -> None:
        with pytest.raises(InvalidJoinError) as info:
            left.transform(
                theta_join(pa.table({"y": [1], "t": ["a"]}) if other is None else other, predicate, **options)
            )
        raised.append(info.value)

    assert jobs_run_by(left.sparkSession, call) == 0
    return str(raised[0])


def test_columns_that_are_not_there(ones: DataFrame) -> None:
    """The name is unknown or the column is not numeric: the message lists the available columns."""
    for predicate in (
        lambda left, right: left.nope < right.y,
        lambda left, right: left.s == right.t,
        lambda left, right: left.price < right.y,
        lambda left, right: left._x < right.y,
        lambda left, right: left.y < right.y,
    ):
        text = problem(ones, predicate)
        assert re.match(
            r"predicate <lambda> reads [\w., ]+; each field must name exactly one numeric column: left", text
        )
        assert "left has x (int64), f (bool); right has y (int64)" in text
    assert "right has no numeric column" in problem(ones, lambda left, right: right.t, pa.table({"t": ["a"]}))


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (lambda left, right: left.x + right.y, "it returns int64, expected a bool"),
        (lambda left, right: None, "it returns none, expected a bool"),
        (lambda left, right: globals() is None, "does not compile: .*globals"),
        (3, "predicate is 3: expected a function of a left and a right row that returns a bool"),
        ("x < y", "predicate is 'x < y': expected a function"),
        (None, "predicate is None"),
        (operator.lt, "expected a function"),
        (functools.partial(operator.lt), "expected a function"),
        (lambda left, right: left[0] < right.y, "uses a row as a whole: read its columns by name"),
        (lambda left, right: left == right, "uses a row as a whole"),
        (lambda left, right: len(left) > right.y, "passes a row to a function that is not compiled with numba.njit"),
        (lambda left, right: sum([2 * number for number in right]) > left.x, "uses a row as a whole"),
        (lambda left: True, "does not compile: it takes 1 argument, expected two"),
        (lambda left, right, more: True, "does not compile: it takes 3 arguments, expected two"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__) if callable(value) else str(value)[:20],
)
def test_what_is_no_predicate(ones: DataFrame, predicate: Any, message: str) -> None:
    with pytest.raises(InvalidJoinError, match=message) as refused:
        ones.transform(theta_join(pa.table({"y": [1]}), predicate))
    assert "\x1b" not in str(refused.value), "plain text, no colours of a terminal"


def test_a_column_is_no_predicate(ones: DataFrame) -> None:
    assert "expected a function of a left and a right row" in problem(ones, ones.x < 3)


@pytest.mark.parametrize("how", ["right", "full", "existence", "sideways", "", None, 3])
def test_wrong_how(ones: DataFrame, how: Any) -> None:
    text = problem(ones, lambda left, right: left.x < right.y, how=how)
    assert f"how={how!r} is not a join type of theta_join; expected one of inner, cross, left, " in text


def test_another_spelling_of_how(ones: DataFrame) -> None:
    out = ones.transform(theta_join(pa.table({"y": [1]}), lambda left, right: left.x < right.y, how="LEFT_SEMI"))
    assert out.columns == ones.columns


def test_duplicate_names(spark: SparkSession, ones: DataFrame) -> None:
    below = lambda left, right: left.x < right.y  # noqa: E731
    assert "more than one column named 's'" in problem(ones, below, pa.table({"y": [1], "s": ["a"]}))
    assert "more than one column named 'x'" in problem(ones, below, pa.table({"y": [1], "x": ["a"]}))
    doubled = ones.select("x", "x", "f")
    assert "'x'" in problem(doubled, below)
    assert "'x'" in problem(doubled, below, how="semi")
    rights = spark.range(1).selectExpr("id as y", "id as y")
    assert "'y'" in problem(ones, below, rights)
    assert "reads right.y; each field must name exactly one numeric column" in problem(ones, below, rights, how="semi")


def test_a_stream_as_other(spark: SparkSession, ones: DataFrame) -> None:
    stream = spark.readStream.format("rate").load()
    assert "other is a streaming DataFrame" in problem(ones, lambda left, right: left.x < right.value, stream)


def test_all_problems_are_told_together(ones: DataFrame) -> None:
    text = problem(ones.withColumn("odd", F.expr("make_interval(1)")), lambda left, right: left.nope, how="up")
    assert text.startswith("3 problems with this join")
    assert problem(ones, lambda left, right: left.nope, pa.table({"x": [1]})).startswith("2 problems with this join")


def test_a_build_side_that_is_too_large(ones: DataFrame) -> None:
    with pytest.raises(BuildSideTooLargeError):
        other = pa.table({"y": list(range(1000))})
        ones.transform(theta_join(other, lambda left, right: left.x < right.y, max_build_bytes=100))


def test_what_is_no_dataframe() -> None:
    with pytest.raises(InvalidJoinError, match="the left side must be a Spark DataFrame, got int"):
        theta_join(pa.table({"y": [1]}), lambda left, right: True)(3)  # type: ignore[arg-type]


def test_arithmetic_of_python(spark: SparkSession) -> None:
    """Integers do not overflow, and a division by zero raises Python's error with both rows."""
    left = frame(spark, x=[2**62, -(2**63)], zero=[0, 0])
    other = pa.table({"y": [2**62, 1], "one": [1.0, -1.0]})
    summed = left.transform(theta_join(other, lambda one, two: one.x + two.y == 2**63))
    assert_pipelined(summed, joins=1)
    assert [(row.x, row.y) for row in summed.collect()] == [(2**62, 2**62)]
    divided = left.transform(theta_join(other, lambda one, two: two.y // one.zero == 0))
    with pytest.raises(PythonException) as raised:
        divided.collect()
    assert "the condition of join 1: predicate <lambda> raises ZeroDivisionError: " in str(raised.value)
    assert "for left (zero=0), right (y=4611686018427387904)" in str(raised.value)
    assert "ConditionError" in str(raised.value)


def test_a_pair_that_is_not_evaluated_raises_nothing(spark: SparkSession) -> None:
    """A semi join does not evaluate pairs after a row's first match."""
    left = frame(spark, x=[1, 1])
    other = pa.table({"y": [1, 0]})
    kept = left.transform(theta_join(other, lambda one, two: one.x % two.y == 0, how="semi"))
    assert_pipelined(kept, joins=1)
    assert [row.x for row in kept.collect()] == [1, 1]
    with pytest.raises(PythonException, match="ZeroDivisionError"):
        left.transform(theta_join(other, lambda one, two: one.x % two.y == 0)).collect()


def test_a_predicate_that_raises(points: DataFrame, circles: DataFrame) -> None:
    def fails(left: Any, right: Any) -> bool:
        if left.id == 33:
            raise ValueError("no such luck")
        return left.x < right.u

    with pytest.raises(PythonException, match="no such luck"):
        points.transform(theta_join(circles, fails, how="left")).collect()


def test_nulls_in_columns_that_are_not_read(spark: SparkSession) -> None:
    """Nulls are irrelevant in columns that the predicate does not read on their side.

    `m` is read on the right side only, and `math` is a module in the predicate.
    """
    left = frame(spark, v=[1, 2, 3], m=[None, None, None], math=[None, 1.0, None])
    right = pa.table({"v": pa.array([None, None, 7], pa.int64()), "m": [1, 2, 3]})
    out = left.transform(theta_join(right, lambda left, right: math.sqrt(left.v) == math.sqrt(right.m), how="semi"))
    assert sorted(row.v for row in out.collect()) == [1, 2, 3]
