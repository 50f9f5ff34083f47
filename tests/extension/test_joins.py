"""Joins planned by the extension against Spark's own: join types, key types, conditions, chains, and random tables."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import declined, report
from tests.support.frames import frame
from tests.support.planned_joins import (
    assert_declined,
    assert_like_spark,
    assert_pipelined,
    mode,
    pipelines_of,
    plan_of,
)
from tests.support.rows import rows_of
from tests.support.sessions import configured

KINDS = ("inner", "left", "right", "full", "semi", "anti")
NAN = float("nan")
WIDE = Context(prec=38)


@pytest.fixture(scope="module")
def left(spark: SparkSession) -> DataFrame:
    return frame(
        spark,
        3,
        k=pa.array([1, 2, 2, None, 5, 6, 6, 8], pa.int64()),
        m=["a", None, "b", "c", None, "x", "x", "y"],
        v=list("pqrstuvw"),
    ).cache()


@pytest.fixture(scope="module")
def right(spark: SparkSession) -> DataFrame:
    return frame(
        spark,
        2,
        rk=pa.array([2, 2, 5, None, 7, 6, 6, 1], pa.int64()),
        rm=["b", None, None, "c", "z", "x", "x", None],
        w=list("PQRSTUVW"),
    ).cache()


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(spark: SparkSession, left: DataFrame, right: DataFrame, kind: str, adaptive: bool) -> None:
    with configured(spark, spark_sql_adaptive_enabled=str(adaptive).lower()):
        hinted = right.hint("pipelined_join")
        out = assert_like_spark(spark, lambda: left.join(hinted, left.k == right.rk, kind))
        assert_pipelined(out, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_null_safe_and_several_keys(spark: SparkSession, left: DataFrame, right: DataFrame, kind: str) -> None:
    hinted = right.hint("pipelined_join")
    condition = left.k.eqNullSafe(right.rk) & (left.m == right.rm)
    assert_pipelined(assert_like_spark(spark, lambda: left.join(hinted, condition, kind)), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_budgets(spark: SparkSession, left: DataFrame, right: DataFrame, kind: str) -> None:
    with configured(spark, **{"spark_sparkext_morsel_maxRows": 1}):
        hinted = right.hint("pipelined_join")
        assert_pipelined(assert_like_spark(spark, lambda: left.join(hinted, left.k == right.rk, kind)), 1)


def test_an_existence_join(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    left.createOrReplaceTempView("existence_left")
    right.createOrReplaceTempView("existence_right")
    exists = "EXISTS (SELECT /*+ PIPELINED_JOIN(existence_right) */ 1 FROM existence_right WHERE rk = k)"
    query = f"SELECT * FROM existence_left WHERE v = 'p' OR {exists}"
    assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)
    with configured(spark, **{"spark_sparkext_morsel_maxRows": 1}):
        assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.timezone.utc)  # type: ignore[misc,arg-type]


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None]),
    "tinyint": (pa.int8(), [-128, 0, 127, None]),
    "smallint": (pa.int16(), [-(2**15), 0, 2**15 - 1, None]),
    "int": (pa.int32(), [-(2**31), 0, 2**31 - 1, None]),
    "bigint": (pa.int64(), [-(2**63), 0, 2**63 - 1, None]),
    "float": (pa.float32(), [0.0, -0.0, NAN, 1.5, None]),
    "double": (pa.float64(), [0.0, -0.0, NAN, float("inf"), 1.5, None]),
    "decimal": (pa.decimal128(12, 2), [Decimal("1.10"), Decimal("-3.00"), None]),
    "wide decimal": (pa.decimal128(38, 10), [Decimal("1.1"), Decimal("-3"), None]),
    "date": (pa.date32(), [dt.date(1582, 10, 4), dt.date(2024, 2, 29), None]),
    "timestamp": (pa.timestamp("us", "UTC"), [utc(1900, 1, 1), utc(2024, 11, 3, 6, 30), None]),
    "timestamp_ntz": (pa.timestamp("us"), [dt.datetime(1900, 1, 1), dt.datetime(2024, 7, 3, 1, 30), None]),
    "string": (pa.string(), ["", "a", "ä" * 40, "a ", None]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x00\x00", None]),
}


@pytest.mark.parametrize("name", KEYS)
def test_every_key_type(spark: SparkSession, name: str) -> None:
    arrow_type, values = KEYS[name]
    numbers = list(range(2 * len(values)))
    one = frame(spark, 2, k=pa.array(values * 2, arrow_type), a=numbers)
    other = frame(spark, 2, q=pa.array(values[::-1] + values, arrow_type), b=numbers)
    for kind in ("left", "anti"):
        out = assert_like_spark(spark, lambda: one.join(other.hint("pipelined_join"), one.k == other.q, kind))
        assert_pipelined(out, 1)
    assert rows_of(one.join(other.hint("pipelined_join"), one.k == other.q))


def test_payload_of_every_kind(spark: SparkSession) -> None:
    columns = """id % 3 AS k, named_struct('a', id, 'b', array(id, null)) AS s, map('x', id) AS m,
        cast(string(id) AS binary) AS y, cast(id AS decimal(38,5)) AS d, timestamp_micros(id) AS t,
        date_from_unix_date(int(id)) AS e, id > 2 AS f, make_dt_interval(int(id)) AS i,
        CASE WHEN id % 2 = 0 THEN string(id) END AS z"""
    one = spark.range(10).selectExpr(*["id AS a"], "id % 4 AS j")
    other = spark.range(10).selectExpr(*[part.strip() for part in _split(columns)])
    out = assert_like_spark(spark, lambda: one.join(other.hint("pipelined_join"), one.j == other.k, "left"))
    assert_pipelined(out, 1)


@pytest.mark.parametrize(
    "value",
    [
        "date_add(DATE'2024-01-01', int(id)) - DATE'2024-01-01'",
        "string(id) COLLATE UTF8_LCASE",
        "TIME'12:34:56.789'",
        "CAST(TIME'12:34:56' AS TIME(0))",
        "array(named_struct('a', string(id) COLLATE UNICODE, 'b', INTERVAL '1' HOUR))",
        "map('x', INTERVAL '1' DAY * id)",
    ],
)
def test_payload_of_types_that_arrow_spells_otherwise(spark: SparkSession, value: str) -> None:
    """Arrow has one type each for the strings of all collations, all day-time intervals, and all times of day."""
    if "TIME'" in value and spark.version < "4.1":
        pytest.skip("times of day are new in 4.1")
    with configured(spark, spark_sql_timeType_enabled="true"):
        build = spark.range(4).selectExpr("id AS dk", f"{value} AS v").hint("pipelined_join")
        probe = spark.range(10).selectExpr("id % 5 AS k", f"{value} AS w")
        out = assert_like_spark(spark, lambda: probe.join(build, F.col("k") == F.col("dk"), "left"))
        assert_pipelined(out, 1)


def _split(columns: str) -> list[str]:
    """Split a list of expressions at its outermost commas."""
    parts, depth = [""], 0
    for letter in columns:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def test_a_computed_key(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    hinted = right.hint("pipelined_join")
    out = assert_like_spark(spark, lambda: left.join(hinted, (left.k + 1) == F.coalesce(right.rk, F.lit(3))))
    assert_pipelined(out, 1)


def test_a_condition_beside_the_keys(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    hinted = right.hint("pipelined_join")
    condition = (left.k == right.rk) & (left.v < F.trim(right.w, F.lit("x")))
    assert_pipelined(assert_like_spark(spark, lambda: left.join(hinted, condition)), 1)


CONDITIONS = {
    "columns": "v < w",
    "earlier source": "v <> w AND NOT (x >= w)",
    "nulls": "m <=> rm OR rm IS NULL",
    "three-valued": "NOT (m = rm AND v > 'q')",
    "literals": "rk >= 2 AND w IN ('P', 'T', 'U') OR m IS NOT NULL AND m > 'a'",
    "null literal": "v < w OR rk = NULL",
    "dates": "v < w OR d < DATE'2020-01-03'",
    "not covered": "length(v) + 1 > length(w)",
}


@pytest.mark.reduced("values", reason="six seconds each; kinds and budgets are independent")
@pytest.mark.parametrize("budget", [1, 1000])
@pytest.mark.parametrize("how", ["LEFT", "RIGHT", "LEFT SEMI", "LEFT ANTI"])
def test_conditions_beside_the_keys(
    spark: SparkSession, left: DataFrame, right: DataFrame, how: str, budget: int
) -> None:
    left.withColumn("x", F.col("v")).createOrReplaceTempView("conditions_left")
    right.selectExpr("*", "date_add(DATE'2020-01-01', int(rk)) AS d").createOrReplaceTempView("conditions_right")
    one, other = ("conditions_left", "conditions_right") if how != "RIGHT" else ("conditions_right", "conditions_left")
    with configured(spark, **{"spark_sparkext_morsel_maxRows": budget}):
        for name, condition in CONDITIONS.items():
            query = f"SELECT /*+ PIPELINED_JOIN({other}) */ * FROM {one} {how} JOIN {other} ON k = rk AND ({condition})"
            out = assert_like_spark(spark, lambda: spark.sql(query))
            if name == "not covered":
                assert_declined(out, "a condition in addition to the keys")
            elif name != "null literal":  # Spark folds it away, perhaps together with the join
                assert_pipelined(out, 1)


@pytest.mark.parametrize("budget", [1, 1000])
def test_a_condition_of_an_existence_join(spark: SparkSession, left: DataFrame, right: DataFrame, budget: int) -> None:
    left.createOrReplaceTempView("existence_left")
    right.createOrReplaceTempView("existence_right")
    exists = "SELECT /*+ PIPELINED_JOIN(existence_right) */ 1 FROM existence_right WHERE rk = k AND w > v"
    query = f"SELECT * FROM existence_left WHERE v = 'p' OR EXISTS ({exists})"
    with configured(spark, spark_sparkext_morsel_maxRows=budget):
        assert_pipelined(assert_like_spark(spark, lambda: spark.sql(query)), 1)


CONDITION_TYPES = ("int", "decimal", "wide decimal", "date", "timestamp", "timestamp_ntz", "string", "binary")


@pytest.mark.parametrize("name", CONDITION_TYPES)
def test_conditions_on_every_type(spark: SparkSession, name: str) -> None:
    arrow_type, values = KEYS[name]
    one = frame(spark, 2, k=[1] * len(values), a=pa.array(values, arrow_type))
    other = frame(spark, 2, q=[1] * len(values), b=pa.array(values, arrow_type))
    for sign in ("<", "<=", ">", ">=", "=", "<>", "<=>"):
        condition = F.expr(f"k = q AND a {sign} b")
        out = assert_like_spark(spark, lambda: one.join(other.hint("pipelined_join"), condition, "left"))
        assert_pipelined(out, 1)


@pytest.mark.parametrize("seed", range(6))
def test_random_chains(spark: SparkSession, seed: int) -> None:
    """Up to four joins of random types over random tables, with filters, renamings and projections in between."""
    rng = random.Random(seed)
    facts = _random_table(spark, rng, "f", 60)
    dims = [_random_table(spark, rng, f"d{number}_", rng.choice([1, 8, 30])) for number in range(4)]
    kinds = [rng.choice(("inner", "left", "semi", "anti", "inner")) for _ in dims]
    cuts = [rng.random() for _ in dims]

    def query() -> DataFrame:
        out = facts
        for number, (dim, kind, cut) in enumerate(zip(dims, kinds, cuts, strict=True)):
            key = "fa" if number % 2 else "fb"
            out = out.join(dim.hint("pipelined_join"), F.col(key) == F.col(f"d{number}_a"), kind)
            if cut < 0.3:
                out = out.filter(F.col("fv") % 3 != number % 3)
            elif cut < 0.6:
                out = out.withColumnRenamed("fa", "renamed").withColumnRenamed("renamed", "fa").drop("fnone")
        return out

    # Spark may move a join below another table's shuffle, which splits the chain.
    assert sum(pipelines_of(query())) == 4
    out = assert_like_spark(spark, query)
    assert_pipelined(out, *pipelines_of(out))


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_side(spark: SparkSession, left: DataFrame, right: DataFrame, kind: str) -> None:
    for one, other in ((left, right.filter("w > 'Z'")), (left.filter("v > 'z'"), right)):
        out = assert_like_spark(spark, lambda: one.join(other.hint("pipelined_join"), one.k == other.rk, kind))
        assert "Declined" not in str(declined(out))


@pytest.mark.parametrize("adaptive", [True, False])
def test_full_joins_amid_others(spark: SparkSession, adaptive: bool) -> None:
    """A full join begins a pipeline: joins above it are stages of the same pipeline, joins below it are not."""
    rng = random.Random(7)
    facts = _random_table(spark, rng, "f", 150).cache()
    first, second, third = (_random_table(spark, rng, name, 40).hint("pipelined_join") for name in "abc")
    with configured(spark, spark_sql_adaptive_enabled=str(adaptive).lower()):
        above = assert_like_spark(
            spark,
            lambda: (
                facts.join(first, facts.fa == first.aa, "full")
                .join(second, F.col("fb") == F.col("bb"), "left")
                .where("bv > 3 OR fv IS NULL")
                .join(third, F.col("ab") == F.col("ca"), "semi")
            ),
        )
        assert_pipelined(above, 3)
        twice = assert_like_spark(
            spark,
            lambda: facts.join(first, facts.fa == first.aa, "full").join(second, F.col("fa") == F.col("ba"), "full"),
        )
        assert_pipelined(twice, 1, 1)
        below = assert_like_spark(
            spark,
            lambda: facts.join(first, facts.fa == first.aa).join(second, F.col("fb") == F.col("bb"), "full"),
        )
        assert_pipelined(below, 1, 1)
        # Columns that a full join fills with nulls are null only above it.
        computed = assert_like_spark(
            spark,
            lambda: facts.join(first, facts.fa == first.aa, "full").join(
                second, F.coalesce("fb", F.lit(3).cast("bigint")) == F.col("bb"), "left"
            ),
        )
        assert pipelines_of(computed), plan_of(computed)


@pytest.mark.parametrize("rows", [1, 30])
def test_what_is_known_of_a_probe_side_is_not_known_of_its_full_join(spark: SparkSession, rows: int) -> None:
    """Adaptive execution drops limits, sorts and DISTINCT if it infers that there is at most one row."""
    probe = frame(spark, 2, k=pa.array(range(rows), pa.int64()), v=["p"] * rows).repartition(3)
    build = spark.range(100).selectExpr("id % 50 AS rk", "id AS w").hint("pipelined_join")

    def full() -> DataFrame:
        return probe.join(build, probe.k == build.rk, "full").select("v", "w", "rk")

    assert_pipelined(full(), 1)
    expected = rows_of(full())
    assert sum(expected.values()) == 100
    assert full().limit(10).count() == 10
    assert len(full().limit(10).collect()) == 10
    assert [row.w for row in full().orderBy("w").collect()] == list(range(100))
    assert_like_spark(spark, lambda: full().select("rk").distinct())
    assert_like_spark(spark, lambda: full().groupBy("rk").agg(F.count("*")))


@pytest.mark.parametrize("kind", KINDS)
def test_computed_keys_of_other_types(spark: SparkSession, kind: str) -> None:
    left = frame(spark, 2, i=pa.array([1, 2, None, 7], pa.int32()), f=[0.0, -0.0, NAN, 1.0], s=["A", "b", None, "c"])
    right = frame(spark, 2, l=pa.array([2, 2, None, 9], pa.int64()), g=[0.0, NAN, 5.0, None], t=["a", "B", "c", None])
    hinted = right.hint("pipelined_join")
    for condition in (left.i == right.l, left.f == right.g, F.lower(left.s) == F.lower(right.t)):
        out = assert_like_spark(
            spark, lambda: left.join(hinted, condition, kind).select(left.f if kind in ("semi", "anti") else right.g)
        )
        assert_pipelined(out, 1)


def test_a_full_join_of_grouped_sides_keeps_its_own_parts(spark: SparkSession) -> None:
    """Both sides are already partitioned by the key, and adaptive execution coalesces those partitions separately."""
    rng = random.Random(11)
    facts, other = _random_table(spark, rng, "f", 300), _random_table(spark, rng, "a", 200)
    with configured(spark, spark_sql_adaptive_advisoryPartitionSizeInBytes="1m", spark_sql_shuffle_partitions=7):

        def query() -> DataFrame:
            one = facts.groupBy("fa").agg(F.count("*").alias("n"), F.sum("fv").alias("s"))
            two = other.groupBy("aa").agg(F.max("av").alias("m")).hint("pipelined_join")
            joined = one.join(two, F.col("fa").eqNullSafe(F.col("aa")), "full")
            return joined.groupBy("fa").agg(F.count("*"), F.sum("m"))

        assert_pipelined(assert_like_spark(spark, query), 1)
        many = facts.repartition(7, "fa").join(other.hint("pipelined_join"), facts.fa == other.aa, "full")
        assert many.count() == facts.join(other, facts.fa == other.aa, "full").count()


def _random_table(spark: SparkSession, rng: random.Random, prefix: str, rows: int) -> DataFrame:
    def keys() -> pa.Array:
        return pa.array([None if rng.random() < 0.1 else rng.randrange(12) for _ in range(rows)], pa.int64())

    columns = {
        f"{prefix}a": keys(),
        f"{prefix}b": keys(),
        f"{prefix}v": pa.array(range(rows), pa.int64()),
        f"{prefix}none": pa.array([rng.choice(["x", "", None]) for _ in range(rows)], pa.string()),
    }
    return frame(spark, 2, **columns)


DECLINED = {
    "conditions of a full join": (
        "full",
        lambda a, b: (a.k == b.rk) & (F.soundex(a.m) != b.rm),
        "a condition in addition to the keys of a full outer join, which only Spark evaluates",
    ),
    "texts": (
        "inner",
        lambda a, b: F.concat(a.m, b.rm) < "m",
        "neither an equality nor a comparison between the two sides",
    ),
    "cross": ("cross", None, "neither an equality nor a comparison between the two sides"),
    "conditions of an outer join": (
        "left",
        lambda a, b: (a.k == b.rk) & (a.v < F.trim(b.w, F.lit("x"))),
        "a condition in addition to the keys of a left outer join, which only Spark evaluates: ",
    ),
    "interval key": (
        "inner",
        lambda a, b: F.make_ym_interval(a.k.cast("int")) == F.make_ym_interval(b.rk.cast("int")),
        "a key of type interval year to month",
    ),
}


@pytest.mark.parametrize("case", DECLINED)
def test_what_is_declined(spark: SparkSession, left: DataFrame, right: DataFrame, case: str) -> None:
    kind, condition, reason = DECLINED[case]
    hinted = right.hint("pipelined_join")

    def query() -> DataFrame:
        return left.crossJoin(hinted) if condition is None else left.join(hinted, condition(left, right), kind)

    assert_declined(assert_like_spark(spark, query), reason)


@pytest.mark.parametrize("value", ["array()", "map()", "array(map())"])
def test_payload_of_nothing_does_not_travel(spark: SparkSession, left: DataFrame, value: str) -> None:
    """The element type is null and NOT NULL, which pyarrow cannot represent."""
    other = spark.range(3).selectExpr("id AS q", f"{value} AS nothing")
    out = assert_like_spark(spark, lambda: left.join(other.hint("pipelined_join"), left.k == other.q, "left"))
    assert_declined(out, "column nothing of type ")


def test_payload_that_does_not_travel(spark: SparkSession, left: DataFrame) -> None:
    other = spark.range(3).selectExpr("id AS q", "make_interval(int(id)) AS i")
    out = assert_like_spark(
        spark,
        lambda: left.join(other.hint("pipelined_join"), left.k == other.q).withColumn("i", F.col("i").cast("string")),
    )
    assert_declined(out, "column i of type interval cannot be passed")


def test_another_order_and_a_reduced_build_side_give_the_same_rows(spark: SparkSession) -> None:
    """A chain of a fan-out, a dimension of the fanned-out rows, and a selective dimension of the probe side.

    Measured order runs the selective dimension first, because it drops most rows.
    """
    facts = frame(spark, 1, k=range(3000), d=[number % 100 for number in range(3000)])
    sales = frame(spark, 1, sk=[number % 3000 for number in range(9000)], buyer=[number % 7 for number in range(9000)])
    few, buyers = frame(spark, 1, dk=[0, 1, 2, 3]), frame(spark, 1, b=[3], name=["three"])

    def query() -> DataFrame:
        chain = facts.join(sales.hint("pipelined_join"), facts.k == sales.sk)
        chain = chain.join(buyers.hint("pipelined_join"), sales.buyer == buyers.b)
        return chain.join(few.hint("pipelined_join"), facts.d == few.dk)

    told = {}
    for order in ("measured", "query", "random"):
        with configured(spark, **{"spark_sparkext_debug_joinOrder": order}):
            out = assert_like_spark(spark, query)
            assert_pipelined(out, 3)
            told[order] = report(out)
    assert all(task.order == [2, 0, 1] for task in told["measured"].tasks)
    assert "1 of 1 task ran the joins in the order 3, 1, 2" in str(told["measured"])
    assert not any(task.order or task.reduced for task in told["query"].tasks)
    assert all(task.reduced == [(0, 1286)] for task in told["random"].tasks)
    measured, planned = (told[name].joins for name in ("measured", "query"))
    assert [join.operator for join in measured] == [join.operator for join in planned]
    assert measured[0].rows_out < planned[0].rows_out and measured[-1].rows_out == planned[-1].rows_out


@pytest.mark.parametrize("scale", [0, 7, 38])
def test_decimals_of_every_size_come_out(spark: SparkSession, tmp_path: Path, scale: int) -> None:
    """Decimals that Spark stores as longs and as objects, negative and positive, at and around the limits of both."""
    edges = [0, 1, 10**18 - 1, 10**18, 10**18 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1, 2**64, 10**38 - 1]
    values = [None, *(Decimal(sign * edge).scaleb(-scale, WIDE) for edge in edges for sign in (1, -1))]
    table = pa.table({"k": range(len(values)), "d": pa.array(values, pa.decimal128(38, scale))})
    pq.write_table(table, tmp_path / "decimals.parquet")
    with mode(spark, "auto"), configured(spark, spark_sparkext_debug_force="true"):
        rows = spark.read.parquet(f"{tmp_path}/decimals.parquet")

        def joined() -> DataFrame:
            return rows.join(rows.select(F.col("k").alias("other"), F.col("d").alias("twin")), F.expr("k = other"))

        for ask in (
            joined,
            lambda: joined().groupBy("d").agg(F.max("twin"), F.count("*")),
            lambda: joined().selectExpr("d = twin AS same", "d > 0 AS more", "CAST(d AS STRING) AS told"),
            lambda: joined().orderBy("d").limit(5),
        ):
            df = assert_like_spark(spark, ask)
            assert pipelines_of(df), plan_of(df)
