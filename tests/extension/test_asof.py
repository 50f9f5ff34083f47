"""As-of joins planned by the extension against Spark's own: forms, directions, tolerances, types, files, `asof_join`.

If two right rows are equally near, Spark may return either of them.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.support.frames import frame
from tests.support.planned_joins import assert_like_spark, assert_pipelined, mode, pipelines_of, plan_of, reasons_of
from tests.support.sessions import configured

DIRECTIONS = ("backward", "forward", "nearest")
TYPES = {"int": "7", "bigint": "7", "timestamp": "INTERVAL 7 SECONDS", "date": "INTERVAL 7 DAYS", "decimal(9,2)": "7"}


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    """All values are multiples of 5, unique on the right side, so that one or two rows are nearest."""
    generator = random.Random(5)
    left = [None if generator.random() < 0.1 else 5 * generator.randrange(40) for _ in range(60)]
    right = [*(5 * value for value in generator.sample(range(1, 60), 40)), None]
    for name, values in (("l", left), ("r", right)):
        columns = {"id": range(len(values)), "v": pa.array(values, pa.int32())}
        keys = pa.array([generator.choice([0, 1, 2, None]) for _ in values], pa.int32())
        frame(spark, 2, **columns, k=keys).cache().createOrReplaceTempView(name)
    yield
    for name in ("l", "r"):
        spark.catalog.dropTempView(name)


def side(spark: SparkSession, name: str, type_name: str = "int") -> DataFrame:
    value = {"timestamp": "timestamp_seconds(v)", "date": "date_from_unix_date(v)"}.get(type_name)
    return spark.table(name).selectExpr(f"id {name}id", f"k {name}k", f"{value or f'CAST(v AS {type_name})'} {name}v")


def as_of(left: DataFrame, right: DataFrame, **options: Any) -> DataFrame:
    """Return the join without the columns that depend on the choice between two equally near rows."""
    joined = left._joinAsOf(right.hint("pipelined_join"), leftAsOfColumn="lv", rightAsOfColumn="rv", **options)
    return joined.selectExpr("lid", "lk", "abs(double(lv - rv)) AS distance", "lv < rv AS is_after")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_directions_and_tolerances(spark: SparkSession, direction: str) -> None:
    left, right = side(spark, "l"), side(spark, "r", "bigint")

    def query() -> DataFrame:
        parts = []
        for exact, tolerance in ((True, None), (False, None), (True, F.lit(5)), (False, F.lit(5)), (False, F.lit(0))):
            options = {"direction": direction, "allowExactMatches": exact, "tolerance": tolerance}
            how, on = ("left", left.lk == right.rk) if exact else ("inner", left.lk.eqNullSafe(right.rk))
            part = as_of(left, right, how=how, on=on, **options)
            parts.append(part.drop("is_after") if direction == "nearest" else part)
        union = parts[0]
        for part in parts[1:]:
            union = union.unionAll(part)
        return union

    assert_pipelined(assert_like_spark(spark, query), *[1] * 5)


@pytest.mark.parametrize("type_name", TYPES)
def test_types(spark: SparkSession, type_name: str) -> None:
    left, right = side(spark, "l", type_name), side(spark, "r", type_name)
    columns = "lid", "rid"  # intervals have no distance

    def query() -> DataFrame:
        hinted = right.hint("pipelined_join")
        near = {"leftAsOfColumn": "lv", "rightAsOfColumn": "rv", "on": left.lk == right.rk, "how": "left"}
        return left._joinAsOf(hinted, **near, tolerance=F.expr(TYPES[type_name])).select(*columns)

    assert_pipelined(assert_like_spark(spark, query), 1)


SQL = (
    "l ASOF JOIN r MATCH_CONDITION(l.v >= r.v)",
    "l LEFT ASOF JOIN r MATCH_CONDITION(l.v < r.v) ON l.k = r.k",
    "l LEFT ASOF JOIN r MATCH_CONDITION(r.v <= l.v) USING (k)",
)


@pytest.mark.parametrize("text", SQL)
def test_sql(spark: SparkSession, text: str) -> None:
    if spark.version < "4.3":
        pytest.skip("ASOF JOIN is new in 4.3")
    with mode(spark, "auto"):
        out = assert_like_spark(spark, lambda: spark.sql(f"SELECT * FROM {text}"))
    assert pipelines_of(out) == [1], plan_of(out)  # automatic planning leaves joins of few rows to Spark


def test_which_are_declined(spark: SparkSession) -> None:
    left, right = side(spark, "l"), side(spark, "r")
    times = side(spark, "l", "timestamp"), side(spark, "r", "timestamp")

    def joined(left: DataFrame, right: DataFrame, **options: Any) -> DataFrame:
        return left._joinAsOf(right, leftAsOfColumn="lv", rightAsOfColumn="rv", **options)

    def reason(out: DataFrame) -> str:
        assert not pipelines_of(out), plan_of(out)
        return reasons_of(out)[-1]

    doubles = [table.withColumn(name, F.col(name).cast("double")) for table, name in ((left, "lv"), (right, "rv"))]
    assert not pipelines_of(joined(left, right))  # without a hint, no reason is recorded
    assert "not hinted" not in "".join(reasons_of(joined(left, right)))
    hinted = right.hint("pipelined_join")
    assert pipelines_of(joined(left, hinted)) == [1]
    assert reason(joined(doubles[0], doubles[1].hint("pipelined_join"))) == "values of type double"
    assert "not an equality of the two sides" in reason(joined(left, hinted, on=left.lk < right.rk))
    long = F.expr("INTERVAL 1 DAY")
    assert "a tolerance of INTERVAL '1' DAY" in reason(
        joined(times[0], times[1].hint("pipelined_join"), tolerance=long)
    )
    with configured(spark, **{"spark_sql_session_timeZone": "UTC"}):
        assert pipelines_of(joined(times[0], times[1].hint("pipelined_join"), tolerance=long)) == [1]
    local = times[0].withColumn("lv", F.col("lv").cast("timestamp_ntz"))
    assert "INTERVAL '01' HOUR" in reason(
        joined(local, times[1].hint("pipelined_join"), tolerance=F.expr("INTERVAL 1 HOUR"))
    )
    with configured(spark, **{"spark_sql_ansi_enabled": "false"}):  # differences may wrap around
        assert "wrap around" in reason(joined(left, hinted))
        assert pipelines_of(left.transform(sparkext.asof_join(right, on=("lv", "rv")))) == []
        assert "MapInArrow" in plan_of(left.transform(sparkext.asof_join(right, on=("lv", "rv"))))
    with mode(spark, "off"):
        assert not pipelines_of(joined(left, hinted))


def test_force_needs_no_hint(spark: SparkSession) -> None:
    left, right = side(spark, "l"), side(spark, "r")
    with configured(spark, **{"spark_sparkext_debug_force": "true", "spark_sparkext_buildSide_maxBytes": 1}):
        for name, joins in (("hint", [1]), ("auto", [1]), ("off", [])):
            with mode(spark, name):
                assert pipelines_of(left._joinAsOf(right, leftAsOfColumn="lv", rightAsOfColumn="rv")) == joins


def test_in_a_chain_and_under_filters(spark: SparkSession) -> None:
    left, right = side(spark, "l"), side(spark, "r").hint("pipelined_join")
    keys = spark.range(3).selectExpr("int(id) kk", "string(id) name").hint("pipelined_join")

    def query() -> DataFrame:
        near = left._joinAsOf(right, leftAsOfColumn="lv", rightAsOfColumn="rv", how="left")
        return near.filter("rv > 20 OR rv IS NULL").join(keys, F.col("rk") == F.col("kk"), "left").drop("rid")

    assert_pipelined(assert_like_spark(spark, query), 2)


def test_in_subqueries_and_caches(spark: SparkSession) -> None:
    left, right = side(spark, "l"), side(spark, "r").hint("pipelined_join")
    near = left._joinAsOf(right, leftAsOfColumn="lv", rightAsOfColumn="rv")
    near.cache().createOrReplaceTempView("near")
    out = spark.sql("SELECT *, (SELECT max(rid) FROM near) FROM near WHERE lid IN (SELECT rid FROM near)")
    assert out.count() > 0
    assert near.count() == near.unpersist().count()
    spark.catalog.dropTempView("near")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_transform_is_like_pandas(spark: SparkSession, direction: str) -> None:
    generator = random.Random(8)
    tables = [{"t": [generator.randrange(20) for _ in range(50)], "g": generator.choices("ab", k=50)} for _ in range(2)]
    tables[0]["v"], tables[1]["w"] = list(range(50)), list(range(50))
    one, other = (pd.DataFrame(table).sort_values("t", kind="stable") for table in tables)
    probe = frame(spark, 3, **tables[0])
    for exact in (True, False):
        for tolerance in (None, 0, 2):
            options = {"direction": direction, "allow_exact_matches": exact, "tolerance": tolerance}
            out = probe.transform(sparkext.asof_join(pa.table(tables[1]), on="t", by="g", **options))
            assert_pipelined(out, 1)
            assert out.columns == ["t", "g", "v", "w"]
            expected = pd.merge_asof(one, other, on="t", by="g", **options)
            assert sorted((row.v, -1 if row.w is None else row.w) for row in out.collect()) == sorted(
                zip(expected.v, expected.w.fillna(-1).astype(int), strict=True)
            )


def test_the_transform_with_every_tolerance(spark: SparkSession) -> None:
    moment = dt.datetime(2024, 3, 10, 12)  # a day after the last one before summer time
    day = dt.timedelta(days=1)
    cases: list[tuple[Any, list[Any], list[Any], Any, bool]] = [
        (pa.date32(), [moment.date()], [moment.date() - 2 * day], 2 * day, True),
        (pa.timestamp("us", "UTC"), [moment], [moment - day / 24], day / 24, True),
        (pa.timestamp("us", "UTC"), [moment], [moment - day], day, False),
        (pa.decimal128(9, 2), [3], [1], 2, True),
        (pa.float64(), [3.5], [1.5], 2.0, False),
        (pa.int64(), [3], [1], 2, True),
    ]
    for arrow_type, left, right, tolerance, planned in cases:
        probe, other = frame(spark, 2, t=pa.array(left, arrow_type)), frame(spark, 2, s=pa.array(right, arrow_type))
        # With `allow_exact_matches=False`, Spark excludes a distance equal to the tolerance as well; pandas does not.
        joined = sparkext.asof_join(other, on=("t", "s"), tolerance=tolerance, allow_exact_matches=False)
        out = probe.transform(joined)
        assert bool(pipelines_of(out)) == planned
        assert out.filter("s IS NOT NULL").count() == 1, arrow_type


def test_files_are_read_by_workers(spark: SparkSession, tmp_path: Path) -> None:
    generator = random.Random(2)
    quotes = pa.table({"q": generator.sample(range(10_000), 3000), "n": generator.choices(range(5), k=3000)})
    trades = pa.table({"t": generator.choices(range(10_000), k=5000), "s": generator.choices(range(5), k=5000)})
    pq.write_table(quotes, tmp_path / "quotes.parquet")
    pq.write_table(trades, tmp_path / "trades.parquet")
    read = {name: spark.read.parquet(str(tmp_path / f"{name}.parquet")) for name in ("trades", "quotes")}
    with mode(spark, "auto"):
        out = read["trades"].transform(sparkext.asof_join(read["quotes"], on=("t", "q"), by=[("s", "n")]))
        assert plan_of(out).count("fused") >= 2, plan_of(out)
        expected = pd.merge_asof(
            trades.to_pandas().sort_values("t"),
            quotes.to_pandas().sort_values("q"),
            left_on="t",
            right_on="q",
            left_by="s",
            right_by="n",
        )
        assert out.agg(F.sum("q"), F.count("q")).first()[:] == (int(expected.q.sum()), int(expected.q.count()))
