"""Pipelines whose build sides turn out not to fit: Spark's own joins give the rows, and the plan records it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from sparkext.errors import ReportUnavailableError
from tests.extension.test_failures import assert_freed, assert_usable, build_files
from tests.support.planned_joins import (
    assert_like_spark,
    assert_pipelined,
    mode,
    pipelines_of,
    plan_of,
    reasons_of,
    without_names,
)
from tests.support.rows import rows_of
from tests.support.sessions import configured

LIMIT = "spark_sparkext_buildSide_maxBytes"
FELL_BACK = "fell back to Spark's own joins: the build side of the join on "
BUILT = 400
_PLACED = re.compile(r"fell back .*\n.*\b(?:AdaptiveSparkPlan|Project|\w+Join|SortMergeJoin)\b")


@pytest.fixture(params=[True, False], ids=["adaptive", "static"])
def adaptive(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    with configured(spark, spark_sql_adaptive_enabled=str(request.param).lower()):
        yield request.param


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    """Register probe rows, a small build side, and two large ones."""
    probe = "id", "if(id % 7 = 0, NULL, id % 60) AS k", "id % 10 AS s", "id * 3 AS v", "double(id % 5) AS x"
    spark.range(0, 120, 1, 3).selectExpr(*probe).createOrReplaceTempView("p")
    spark.range(8).selectExpr("id AS sk", "concat('s', id) AS short").createOrReplaceTempView("small")
    for name, shift in (("large", 40), ("other", 20)):
        built = f"if(id % 5 = 0, NULL, id % 90 + {shift}) AS {name}_k", f"concat('{name} ', id) AS {name}_name"
        more = f"id * 2 AS {name}_v", f"double(id % 6) AS {name}_x"
        spark.range(0, BUILT, 1, 4).selectExpr(*built, *more).createOrReplaceTempView(name)
    yield
    for name in ("p", "small", "large", "other"):
        spark.catalog.dropTempView(name)


def limited(spark: SparkSession, most: object = "2k") -> Any:
    return configured(spark, spark_sparkext_partitioned="never", **{LIMIT: most})


def assert_fell_back(frame: DataFrame, *joins: int) -> None:
    """Assert that the plan has pipelines of these numbers of joins, and that each fell back to Spark's own joins."""
    plan = plan_of(frame)
    assert pipelines_of(frame) == list(joins), plan
    assert plan.count(FELL_BACK) == len(joins), plan
    assert len(_PLACED.findall(plan)) == len(joins), plan
    told = [reason for reason in reasons_of(frame) if " does not fit: its first " in reason]
    assert len(told) == len(joins), reasons_of(frame)


def assert_falls_back(
    spark: SparkSession, query: Callable[[], DataFrame], *joins: int, most: object = "2k"
) -> DataFrame:
    """Run a query under a limit for build sides; assert that it fell back, and that its rows equal Spark's."""
    with limited(spark, most):
        ours = query()
        got = rows_of(ours)
    assert_fell_back(ours, *joins)
    with mode(spark, "off"):
        own = query()
        expected = rows_of(own)
        assert not pipelines_of(own)
    assert [(f.name, f.dataType, f.nullable) for f in ours.schema] == [
        (f.name, f.dataType, f.nullable) for f in own.schema
    ]
    assert got == expected, f"missing {expected - got}, surplus {got - expected}"
    assert got
    return ours


KINDS = ("INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")
HINT = "/*+ PIPELINED_JOIN(large) */"
CONDITIONS = {
    "null-safe": "k <=> large_k AND s = large_v % 10",
    "computed": "v + 1 = large_v - 1 AND upper(concat('large ', id)) <> upper(large_name)",
    "widened": "CAST(k AS INT) = large_k",
    "doubles": "x - 1 = -large_x",
    "beside keys": "k = large_k AND v < large_v AND x <> large_x",
    "ranges": "v >= large_v AND v < large_v + 3",
    "a band": "abs(v - large_v) <= 2",
    "a formula": "v * large_v % 11 = 3 AND x <> large_x",
}


def one_of(kind: str, condition: str) -> str:
    columns = "id, NULL" if kind in ("LEFT SEMI", "LEFT ANTI") else "id, large_name"
    return f'(SELECT {HINT} "{kind} {condition}", {columns} FROM p {kind} JOIN large ON {condition})'


def test_every_kind(spark: SparkSession, adaptive: bool) -> None:
    exists = f"EXISTS (SELECT {HINT} 1 FROM large WHERE large_k = k)"
    parts = [f"(SELECT string({exists}) AS found, id, NULL FROM p)", *(one_of(kind, "k = large_k") for kind in KINDS)]
    assert_falls_back(spark, lambda: spark.sql(" UNION ALL ".join(parts)), *[1] * len(parts))


def test_conditions(spark: SparkSession) -> None:
    kinds = {name: ("INNER", "LEFT") if name in ("null-safe", "ranges") else ("INNER",) for name in CONDITIONS}
    parts = [one_of(kind, condition) for name, condition in CONDITIONS.items() for kind in kinds[name]]
    parts.append(one_of("INNER", "k = large_k AND length(concat(large_name, id)) % 2 = 0"))
    out = assert_falls_back(spark, lambda: spark.sql(" UNION ALL ".join(parts)), *[1] * len(parts))
    found = {row[0] for row in out.where("large_name IS NOT NULL").collect()}
    assert len(found) == len(parts), found


AS_OF: tuple[dict[str, Any], ...] = (
    {"direction": "backward"},
    {"direction": "forward", "how": "left", "tolerance": 4},
    {"direction": "nearest", "how": "left", "allowExactMatches": False},
    {"direction": "backward", "allowExactMatches": False, "tolerance": 3},
)


@pytest.mark.parametrize("type_name", ["int", "timestamp", "date", "decimal(9,2)"])
def test_as_of(spark: SparkSession, type_name: str) -> None:
    made = {"timestamp": "timestamp_seconds({})", "date": "date_from_unix_date(int({}))"}
    units = {"timestamp": "INTERVAL {} SECONDS", "date": "INTERVAL {} DAYS"}
    forms = AS_OF if type_name == "int" else AS_OF[-1:]

    def side(name: str, value: str) -> DataFrame:
        typed = made.get(type_name, f"CAST({{}} AS {type_name})").format(value)
        return spark.table(name).selectExpr("*", f"{typed} AS {name}_at")

    def query() -> DataFrame:
        left, right = side("p", "v"), side("large", "large_v").hint("pipelined_join")
        parts = []
        for options in forms:
            near: dict[str, Any] = {"leftAsOfColumn": "p_at", "rightAsOfColumn": "large_at", **options}
            if "tolerance" in options:
                near["tolerance"] = F.expr(units.get(type_name, "{}").format(options["tolerance"]))
            joined = left._joinAsOf(right, on=left.s == F.col("large_v") % 10, **near)
            # Spark may return either of two equally near rows.
            parts.append(joined.selectExpr("id", "abs(v - large_v)"))
        return functools.reduce(DataFrame.unionAll, parts)

    assert_falls_back(spark, query, *[1] * len(forms))


def test_a_chain(spark: SparkSession) -> None:
    """A chain with filters, renamings and conditions between its joins. Two of its build sides do not fit."""
    sql = """
        SELECT /*+ PIPELINED_JOIN(other) */ id, short, large_name, name, v
        FROM (
          SELECT /*+ PIPELINED_JOIN(large) */ q.*, large_name, large_v FROM (
            SELECT /*+ PIPELINED_JOIN(small) */ id, k AS key, s, v, short FROM p LEFT JOIN small ON s = sk
          ) q JOIN large ON key = large_k AND v <= large_v
          WHERE short IS NULL OR length(large_name) % 2 = length(short) % 2
        ) LEFT JOIN (SELECT other_k AS ok, other_name AS name FROM other) other ON key = ok AND s < ok
        WHERE name IS NULL OR large_v % 3 <> 0
    """
    out = assert_falls_back(spark, lambda: spark.sql(sql), 3)
    assert [column for column, _ in out.dtypes] == ["id", "short", "large_name", "name", "v"]


def test_limits(spark: SparkSession) -> None:
    def query() -> DataFrame:
        built = spark.range(0, 100, 1, 1).selectExpr("id AS dk", "concat('d', id) AS name")
        return spark.table("p").join(built.hint("pipelined_join"), F.col("k") == F.col("dk"))

    found = assert_falls_back(spark, query, 1, most=1)
    told = re.search(r"its first 100 rows take (\d+) bytes, the limit is 1\b", reasons_of(found)[0])
    assert told is not None, reasons_of(found)
    size = int(told[1])
    assert_falls_back(spark, query, 1, most=size - 1)
    for most in (size, size + 1):
        with limited(spark, most):
            frame = query()
            assert rows_of(frame) == rows_of(found)
        assert_pipelined(frame, 1)
        assert "fell back" not in plan_of(frame) and not reasons_of(frame)


def test_what_was_built_is_let_go(spark: SparkSession) -> None:
    """The first build side's file is deleted when the second does not fit, even while the plan is alive."""
    before = build_files(spark)
    sql = "SELECT /*+ PIPELINED_JOIN(small, large) */ * FROM p LEFT JOIN small ON s = sk LEFT JOIN large ON k = large_k"
    out = assert_falls_back(spark, lambda: spark.sql(sql), 2)
    assert build_files(spark) <= before
    assert_fell_back(out, 2)
    del out
    assert_freed(spark, before)
    assert_usable(spark)


JOIN = f"SELECT {HINT} k, s, v, large_name FROM %s JOIN large ON k = large_k"


def test_operators_above_find_rows_where_they_were_promised(spark: SparkSession) -> None:
    """Partitioned by keys, co-partitioned with another side, or in one partition: no shuffle above the pipeline."""
    with configured(spark, spark_sql_adaptive_enabled="false", spark_sql_autoBroadcastJoinThreshold="-1"):
        keyed = spark.table("p").repartition(5, "s")
        keyed.createOrReplaceTempView("keyed")
        spark.table("p").coalesce(1).createOrReplaceTempView("single")
        spark.table("other").repartition(5, F.expr("other_v % 10")).selectExpr(
            "other_v % 10 AS os", "other_name"
        ).createOrReplaceTempView("beside")
        grouped = f"SELECT s, count(*), sum(v), max(large_name) FROM ({JOIN % 'keyed'}) GROUP BY s"
        merged = f"SELECT s, large_name, other_name FROM ({JOIN % 'keyed'}) JOIN beside ON s = os"
        whole = f"SELECT count(*), sum(v), max(large_name) FROM ({JOIN % 'single'})"
        for sql in (grouped, merged, whole):
            out = assert_falls_back(spark, lambda: spark.sql(sql), 1)
            above, _, _ = plan_of(out).partition("PipelinedJoin [")
            assert "Exchange" not in above, plan_of(out)


def test_runs_again_and_by_several_threads(spark: SparkSession) -> None:
    with limited(spark):
        frame = spark.sql(JOIN % "p")
        with ThreadPoolExecutor(3) as pool:
            ran = [future.result() for future in [pool.submit(rows_of, frame) for _ in range(3)]]
        again = rows_of(frame)
        assert_fell_back(frame, 1)
        counted = frame.count()
    with mode(spark, "off"):
        expected = rows_of(spark.sql(JOIN % "p"))
    assert ran == [expected] * 3
    assert again == expected
    assert counted == expected.total()
    with limited(spark):
        fresh = spark.sql(JOIN % "p")
        assert fresh.count() == counted
    reason = r"Spark's own joins ran in place of this pipeline: \[BUILD_SIDE_OVER_LIMIT\] the build side"
    with pytest.raises(ReportUnavailableError, match=reason):
        sparkext.report(fresh)
    assert "does not fit" in reasons_of(fresh)[0]


def test_cached_written_and_in_subqueries(spark: SparkSession, adaptive: bool, tmp_path: Path) -> None:
    with limited(spark):
        cached = spark.sql(JOIN % "p").cache()
        got = rows_of(cached), rows_of(cached)
        kept = cached.selectExpr("max(v) AS most")
        most = kept.first().most
        cached.unpersist()
        spark.sql(JOIN % "p").where("s > 2").write.parquet(str(tmp_path / "rows"))
        most_of, mean_of = (f"(SELECT {of}(v) FROM ({JOIN % 'p'}))" for of in ("max", "avg"))
        nested = f"SELECT id, {most_of} AS most FROM p WHERE v <= {mean_of}"
        inner = spark.sql(nested)
        found = rows_of(inner)
    assert inner.count() == found.total()
    with mode(spark, "off"):
        expected = rows_of(spark.sql(JOIN % "p"))
        assert got == (expected, expected)
        assert most == spark.sql(f"SELECT max(v) AS most FROM ({JOIN % 'p'})").first().most
        assert rows_of(spark.read.parquet(str(tmp_path / "rows"))) == rows_of(spark.sql(JOIN % "p").where("s > 2"))
        assert found == rows_of(spark.sql(nested))
    assert FELL_BACK in plan_of(inner)


def test_subqueries_and_stages_below_run_once(spark: SparkSession, adaptive: bool) -> None:
    """Spark's own joins reuse the shuffled sources of the pipeline, and the values of their subqueries."""
    seen = spark.sparkContext.accumulator(0)

    @F.udf("bigint", useArrow=False)
    def counted(value: int) -> int:
        seen.add(1)
        return value

    with limited(spark):
        counted_rows = spark.range(0, 300, 1, 2).select((counted("id") % 100).alias("id"))
        build = counted_rows.repartition(3, "id").groupBy("id").agg(F.count("*").alias("many"))
        spark.table("p").where("v > (SELECT min(sk) FROM small)").join(
            build.hint("pipelined_join"), F.col("k") == build.id
        ).createOrReplaceTempView("joined")
        out = spark.table("joined")
        got = rows_of(out)
    assert_fell_back(out, 1)
    ran = seen.value
    with mode(spark, "off"):
        assert got == rows_of(spark.table("joined"))
    assert seen.value == 2 * ran


def test_a_build_side_that_does_not_pass_the_driver(spark: SparkSession) -> None:
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get("spark.driver.maxResultSize", "1g")
    long = "(SELECT id AS b, repeat(concat('long', id), 500) AS text FROM range(0, 900, 1, 9)) b"
    sql = f"SELECT /*+ PIPELINED_JOIN(b) */ max(text) FROM p JOIN {long} ON k = b"
    conf.set("spark.driver.maxResultSize", "1m")
    try:
        frame = spark.sql(sql)
        got = rows_of(frame)
    finally:
        conf.set("spark.driver.maxResultSize", before)
    assert "does not pass through the driver" in plan_of(frame), plan_of(frame)
    with mode(spark, "off"):
        assert got == rows_of(spark.sql(sql))


def test_a_driver_that_cannot_write_build_files(spark: SparkSession) -> None:
    assert_usable(spark)
    folder = next(Path(spark.sparkContext._temp_dir).parent.glob("sparkext-*"))
    aside = folder.rename(folder.with_name("aside"))
    folder.touch()
    try:
        frame = spark.sql((JOIN % "p").replace("v,", "v + 1,"))
        got = rows_of(frame)
    finally:
        folder.unlink()
        aside.rename(folder)
    assert re.search(r"large_k does not fit the driver's disk: .*Not a directory", plan_of(frame))
    with mode(spark, "off"):
        assert got == rows_of(spark.sql((JOIN % "p").replace("v,", "v + 1,")))
    assert_usable(spark)


@pytest.fixture(scope="module")
def files(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a build side in Parquet files."""
    folder = tmp_path_factory.mktemp("files")
    rows = spark.range(0, 500, 1, 1).selectExpr("id % 90 AS fk", "concat('file ', id) AS text", "id AS n")
    rows.write.parquet(str(folder / "spark"))
    return folder


def described(frame: DataFrame) -> str:
    mode = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    return without_names(frame._jdf.queryExecution().explainString(mode))


def test_a_build_side_that_workers_read(spark: SparkSession, files: Path) -> None:
    """If the footers cannot prove that it fits, the build side is built before the join begins."""

    def query(keep: str = "n >= 0") -> DataFrame:
        build = spark.read.parquet(str(files / "spark")).where(keep)
        return spark.table("p").join(build.hint("pipelined_join"), F.col("k") == F.col("fk"))

    with limited(spark, 10_000):
        frame = query()
        got = rows_of(frame)
        told = described(frame)
    assert "(fused)" in plan_of(frame) and "built before the join because it may be larger" in told, told
    reason = re.search(
        r"fell back to Spark's own joins: the build side of the join on p.k = fk cannot be used: .*", told
    )
    assert reason is not None and re.search(r"its first 500 rows take [\d,]+ bytes, the limit is 10,000", reason[0]), (
        told
    )
    assert "its first 500 rows take" in reasons_of(frame)[0]
    with mode(spark, "off"):
        assert got == rows_of(query())
    # The filtered rows fit.
    with limited(spark, 10_000):
        few = assert_like_spark(spark, lambda: query("n < 100"))
    assert "built before the join because it may be larger" in described(few) and "fell back" not in plan_of(few)
    assert sparkext.report(few).joins[0].build_rows == 100
    # 27 bytes per row, plus the bytes of the strings, which the footer states: an upper bound for any filter.
    with limited(spark, 500 * 27 + 3890):
        known = query()
        assert rows_of(known) == got
    assert "built before the join" not in described(known) and "fell back" not in plan_of(known)
