"""Pipelined joins within the rest of Spark: adaptive execution, hints, modes, subqueries, caches, sinks, metrics."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkext
from tests.support.planned_joins import (
    assert_declined,
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

HINT = "/*+ PIPELINED_JOIN(dims) */"
HINTS = "/*+ PIPELINED_JOIN(dims, more) */"
JOINED = f"SELECT {HINT} id, v, name FROM facts JOIN dims ON k = dk"


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    facts = spark.range(20).selectExpr("id", "id % 5 AS k", "id % 3 AS j", "id * 10 AS v", "int(id % 3) AS i")
    facts.createOrReplaceTempView("facts")
    spark.range(4).selectExpr("id AS dk", "concat('d', id) AS name", "id * 10 AS w").createOrReplaceTempView("dims")
    spark.range(3).selectExpr("id AS ek", "concat('e', id) AS label", "id AS z").createOrReplaceTempView("more")
    yield
    for view in ("facts", "dims", "more"):
        spark.catalog.dropTempView(view)


def sql(spark: SparkSession, text: str) -> Callable[[], DataFrame]:
    return lambda: spark.sql(text)


# --- operators between the joins of a chain ---

ONE_PIPELINE = {
    "a bare chain": "SELECT * FROM facts JOIN dims ON k = dk JOIN more ON j = ek",
    "fewer columns": "SELECT label FROM (SELECT j, w FROM facts JOIN dims ON k = dk) JOIN more ON j = ek",
    "renamed columns": (
        "SELECT a + n, label FROM (SELECT j AS a, w AS n FROM facts JOIN dims ON k = dk) JOIN more ON a = ek"
    ),
    "a filter on both sides": (
        "SELECT id, label FROM (SELECT * FROM facts LEFT JOIN dims ON k = dk WHERE v > w OR w IS NULL)"
        " JOIN more ON j = ek"
    ),
    "no column at all": "SELECT count(*) FROM facts JOIN dims ON k = dk JOIN more ON j = ek",
    "a key of another type": "SELECT id, label FROM facts JOIN dims ON k = dk JOIN more ON i = ek",
    "a guard": (  # Spark evaluates the condition of the lower join first
        "SELECT id FROM facts JOIN dims ON k = dk AND v <> w JOIN more ON j = ek AND 10 / (v - w) < z"
    ),
}


def hinted(query: str) -> str:
    return query.replace("SELECT", f"SELECT {HINTS}")


@pytest.mark.parametrize("name", ONE_PIPELINE)
def test_one_pipeline(spark: SparkSession, name: str) -> None:
    with configured(spark, spark_sql_adaptive_enabled=str(name == "no column at all").lower()):
        assert_pipelined(assert_like_spark(spark, sql(spark, hinted(ONE_PIPELINE[name]))), 2)


def test_a_computed_projection_parts_the_chain(spark: SparkSession) -> None:
    inner = f"SELECT {HINT} j * 2 % 3 AS computed, name FROM facts JOIN dims ON k = dk"
    query = f"SELECT /*+ PIPELINED_JOIN(more) */ * FROM ({inner}) JOIN more ON computed = ek"
    assert_pipelined(assert_like_spark(spark, sql(spark, query)), 1, 1)


def test_a_key_that_an_earlier_join_guards_parts_the_chain(spark: SparkSession) -> None:
    query = f"SELECT {HINTS} id, label FROM facts JOIN dims ON k + 1 = dk AND v <> w JOIN more ON 60 / (v - 40) = ek"
    assert_pipelined(assert_like_spark(spark, sql(spark, query)), 1, 1)


def test_exchanges_of_equal_pipelines_are_reused(spark: SparkSession) -> None:
    grouped = "SELECT {0} name, sum(v) AS s FROM facts {1} JOIN dims {2} ON {1}.k = {2}.dk GROUP BY name"
    one, other = (grouped.format(f"/*+ PIPELINED_JOIN({d}) */", f, d) for f, d in (("f1", "d1"), ("f2", "d2")))
    query = f"SELECT a.name, a.s + b.s FROM ({one}) a JOIN ({other}) b ON a.name = b.name"
    with configured(spark, spark_sql_adaptive_enabled="false"):
        out = assert_like_spark(spark, sql(spark, query))
        assert pipelines_of(out) == [1], plan_of(out)
        assert "ReusedExchange" in plan_of(out)


def test_adaptive_execution_plans_again(spark: SparkSession) -> None:
    """Adaptive execution plans joins over shuffles again once it has measured their sizes."""
    query = f"""SELECT {HINTS} d.name, count(*) AS n FROM (SELECT k, j, sum(v) AS v FROM facts GROUP BY k, j)
        JOIN (SELECT dk, max(name) AS name FROM dims GROUP BY dk) d ON k = dk
        LEFT JOIN more ON j = ek GROUP BY d.name"""
    query = query.replace("(dims, more)", "(d, more)")
    with configured(spark, spark_sql_adaptive_enabled="true"):
        out = assert_like_spark(spark, sql(spark, query))
        assert_pipelined(out, 2)
        assert "ShuffleQueryStage" in plan_of(out)
        nothing = assert_like_spark(spark, sql(spark, query.replace("FROM facts", "FROM facts WHERE v < rand() - 1")))
        assert sum(pipelines_of(nothing)) <= 2


@pytest.mark.parametrize("regrouped", [False, True], ids=["free", "bound by what follows"])
def test_adaptive_execution_merges_small_partitions_of_each_side(spark: SparkSession, regrouped: bool) -> None:
    """Also if the other side is not a shuffle. A Python task costs too much for a handful of rows."""
    grouped = "SELECT k, sum(v) AS v FROM facts GROUP BY k"
    query = f"SELECT /*+ PIPELINED_JOIN(dims) */ k, g.v, name FROM ({grouped}) g JOIN dims ON k = dk"
    if regrouped:  # no second shuffle: the partitioning of the first is still required
        query = f"SELECT k, count(*) AS n, max(name) AS name FROM ({query}) GROUP BY k"
    with configured(spark, spark_sql_adaptive_enabled="true", spark_sql_shuffle_partitions=50):
        out = assert_like_spark(spark, sql(spark, query))
        assert_pipelined(out, 1)
        assert plan_of(out).count("AQEShuffleRead coalesced") == 1
        assert plan_of(out).count("ShuffleQueryStage") == 1


def test_adaptive_execution_keeps_to_its_broadcast(spark: SparkSession) -> None:
    """The build side turns out larger than the threshold after Spark has broadcast it."""
    spark.range(4).selectExpr("id AS dk", "repeat(string(id), 4000) AS name").createOrReplaceTempView("wide")
    spark.range(400).selectExpr("id", "id % 5 AS k").createOrReplaceTempView("long")
    query = "SELECT id, name FROM long LEFT JOIN wide ON k = dk"
    with (
        configured(spark, spark_sql_adaptive_enabled="true", spark_sql_autoBroadcastJoinThreshold=2000),
        mode(spark, "auto"),
    ):
        out = assert_like_spark(spark, sql(spark, query))
        assert_declined(out, "")  # the reason is the broadcast, or the updated estimate
        assert "isFinalPlan=true" in plan_of(out)


# --- hints ---


@pytest.mark.parametrize("named", ["dims", "DIMS", "d"])
def test_a_hint_by_name(spark: SparkSession, named: str) -> None:
    alias = " d" if named == "d" else ""
    query = f"SELECT /*+ PIPELINED_JOIN({named}) */ id, name FROM facts JOIN dims{alias} ON k = dk"
    assert_pipelined(assert_like_spark(spark, sql(spark, query)), 1)


def test_a_hint_by_qualified_name(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE default.saved USING parquet AS SELECT * FROM dims")
    try:
        for named in ("saved", "default.saved", "'default.saved'"):
            query = f"SELECT /*+ PIPELINED_JOIN({named}) */ id, name FROM facts JOIN default.saved ON k = dk"
            assert_pipelined(spark.sql(query), 1)
        assert_like_spark(spark, sql(spark, query))
        assert pipelines_of(spark.sql(query.replace("'default.saved'", "elsewhere.saved"))) == []
    finally:
        spark.sql("DROP TABLE default.saved")


def test_a_hint_by_an_unknown_name(spark: SparkSession) -> None:
    query = "SELECT /*+ PIPELINED_JOIN(nosuch) */ id, name FROM facts JOIN dims ON k = dk"
    out = assert_like_spark(spark, sql(spark, query))
    assert pipelines_of(out) == [] and reasons_of(out) == []


def test_a_hint_on_a_dataframe(spark: SparkSession) -> None:
    facts, dims = spark.table("facts"), spark.table("dims")
    for query in (
        lambda: facts.join(dims.hint("pipelined_join"), facts.k == dims.dk),
        lambda: facts.hint("PIPELINED_JOIN").join(dims, facts.k == dims.dk),
        lambda: (
            facts.join(dims.alias("d"), facts.k == F.col("d.dk"))
            .hint("pipelined_join")
            .join(spark.table("more"), F.col("j") == F.col("ek"))
        ),
    ):
        out = assert_like_spark(spark, query)
        assert pipelines_of(out) == [1], plan_of(out)


def test_a_hint_on_the_probe_side_asks_for_the_join(spark: SparkSession) -> None:
    query = "SELECT /*+ PIPELINED_JOIN(facts) */ id, name FROM facts LEFT JOIN dims ON k = dk"
    assert_pipelined(assert_like_spark(spark, sql(spark, query)), 1)


def test_a_hint_for_spark_is_respected(spark: SparkSession) -> None:
    query = "SELECT /*+ PIPELINED_JOIN(facts), BROADCAST(dims) */ id, name FROM facts JOIN dims ON k = dk"
    assert_declined(assert_like_spark(spark, sql(spark, query)), "a hint in the query requests Spark's broadcast")


# --- modes ---


def test_modes_switch_at_run_time(spark: SparkSession) -> None:
    # The planner estimates that millions of rows pass the filter, enough for auto mode to start a pipeline.
    spark.range(30_000_000).filter("id < 20").selectExpr("id % 5 AS k").createOrReplaceTempView("many")
    with_hint = f"SELECT {HINT} k FROM many LEFT SEMI JOIN dims ON k = dk"
    plain = with_hint.replace(HINT, "")
    with configured(spark, spark_sql_autoBroadcastJoinThreshold=-1):
        for name, query, joins in [
            ("auto", plain, [1]),
            ("hint", plain, []),
            ("off", with_hint, []),
            ("hint", with_hint, [1]),
        ]:
            with mode(spark, name):
                assert pipelines_of(assert_like_spark(spark, sql(spark, query))) == joins


def test_auto_mode_leaves_short_queries_to_spark(spark: SparkSession) -> None:
    with mode(spark, "auto"), configured(spark, spark_sql_autoBroadcastJoinThreshold=-1):
        out = assert_like_spark(spark, sql(spark, JOINED.replace(HINT, "")))
        assert_declined(out, "by the estimates a pipeline is not cheaper than Spark's own joins")


def test_auto_mode_leaves_small_build_sides_to_spark(spark: SparkSession) -> None:
    with mode(spark, "auto"), configured(spark, spark_sql_adaptive_enabled="false"):
        out = assert_like_spark(spark, sql(spark, JOINED.replace(HINT, "")))
        assert_declined(out, "Spark broadcasts all of its build sides")


@pytest.mark.parametrize("name", ["auto", "hint"])
def test_force_takes_every_supported_join(spark: SparkSession, name: str) -> None:
    """Small sides, huge ones, and joins with other hints. Unsupported joins are declined with a reason."""
    supported = {
        JOINED.replace(HINT, ""): 1,
        JOINED.replace("PIPELINED_JOIN", "BROADCAST"): 1,
        JOINED.replace("PIPELINED_JOIN", "MERGE"): 1,
        "SELECT * FROM facts LEFT JOIN dims ON k = dk JOIN more ON j = ek": 2,
    }
    with mode(spark, name), configured(spark, spark_sparkext_debug_force="true"):
        for query, joins in supported.items():
            assert_pipelined(assert_like_spark(spark, sql(spark, query)), joins)
        assert_pipelined(spark.sql("SELECT id FROM dims LEFT JOIN range(1000000000000) ON id = dk"), 1)
        cross = assert_like_spark(spark, sql(spark, "SELECT id, name FROM facts CROSS JOIN dims"))
        assert_declined(cross, "neither an equality nor a comparison between the two sides")


# --- operators that the optimizer adds ---


def test_dynamic_partition_pruning(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "partitioned")
    spark.sql("SELECT id, v, k FROM facts").write.partitionBy("k").parquet(path)
    spark.read.parquet(path).createOrReplaceTempView("partitioned")
    query = f"SELECT {HINT} id, name FROM partitioned JOIN dims ON k = dk WHERE w > 10"
    with configured(spark, spark_sql_optimizer_dynamicPartitionPruning_reuseBroadcastOnly="false"):
        out = assert_like_spark(spark, sql(spark, query))
        assert_pipelined(out, 1)
        assert "dynamicpruning" in plan_of(out)
        with (
            mode(spark, "auto"),
            configured(spark, spark_sql_autoBroadcastJoinThreshold=-1, spark_sql_adaptive_enabled="false"),
        ):
            own = assert_like_spark(spark, sql(spark, query.replace(HINT, "")))
            assert_declined(own, "dynamic partition pruning of the probe side needs Spark's own join")


def test_runtime_bloom_filters(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "facts")
    spark.table("facts").write.parquet(path)
    spark.table("dims").write.parquet(path + "-dims")
    spark.read.parquet(path).createOrReplaceTempView("stored")
    spark.read.parquet(path + "-dims").createOrReplaceTempView("stored_dims")
    query = """SELECT /*+ PIPELINED_JOIN(stored_dims) */ id, name FROM stored JOIN stored_dims ON k = dk WHERE w > 10"""
    with (
        configured(spark, spark_sql_autoBroadcastJoinThreshold=-1, spark_sql_adaptive_enabled="false"),
        configured(
            spark,
            **{
                "spark_sql_optimizer_runtime_bloomFilter_enabled": "true",
                "spark_sql_optimizer_runtime_bloomFilter_applicationSideScanSizeThreshold": "0",
            },
        ),
    ):
        out = assert_like_spark(spark, sql(spark, query))
        assert_pipelined(out, 1)
        assert "might_contain" in plan_of(out)


SUBQUERIES = {
    "scalar": f"SELECT {HINT} v + (SELECT max(z) FROM more), name FROM facts JOIN dims ON k = dk"
    " WHERE v > (SELECT min(z) FROM more)",
    "in": f"SELECT {HINT} id, name FROM facts JOIN dims ON k = dk WHERE j IN (SELECT ek FROM more WHERE z > 0)",
    "exists": f"SELECT {HINT} id FROM facts JOIN dims ON k = dk"
    " WHERE EXISTS (SELECT 1 FROM more WHERE ek = j AND z < w)",
    "not in": f"SELECT {HINT} id, name FROM facts JOIN dims ON k = dk WHERE j NOT IN (SELECT ek FROM more WHERE z > 0)",
    "correlated scalar": f"SELECT {HINT} id, (SELECT sum(z) FROM more WHERE ek = j) FROM facts JOIN dims ON k = dk",
    "in the build side": f"SELECT {HINT} id, name FROM facts"
    " JOIN (SELECT * FROM dims WHERE w >= (SELECT max(z) FROM more)) dims ON k = dk",
    "in the condition": f"SELECT {HINTS} id, name FROM facts JOIN dims ON k = dk AND v + w > (SELECT max(z) FROM more)"
    " JOIN more ON j = ek",
    "joined within": f"SELECT id FROM facts WHERE v > (SELECT {HINT} avg(w) FROM facts JOIN dims ON k = dk)",
}


@pytest.mark.parametrize(("name", "adaptive"), [*((name, True) for name in SUBQUERIES), ("in the build side", False)])
def test_subqueries(spark: SparkSession, name: str, adaptive: bool) -> None:
    with configured(spark, spark_sql_adaptive_enabled=str(adaptive).lower()):
        out = assert_like_spark(spark, sql(spark, SUBQUERIES[name]))
    assert pipelines_of(out) == [1], plan_of(out)
    if name == "in the condition":
        assert "DeclinedPipelinedJoin: a subquery in a join condition" in plan_of(out)


# --- caches, views, tables ---


def test_a_cached_build_side(spark: SparkSession) -> None:
    facts, dims = spark.table("facts"), spark.sql("SELECT dk, name, w + rand() AS r FROM dims").cache()
    try:
        for _ in range(2):
            out = assert_like_spark(spark, lambda: facts.join(dims.hint("pipelined_join"), facts.k == dims.dk))
            assert_pipelined(out, 1)
        assert "InMemoryTableScan" in plan_of(out)
    finally:
        dims.unpersist()


def test_a_cached_result(spark: SparkSession) -> None:
    with mode(spark, "off"):
        expected = rows_of(spark.sql(JOINED))
    cached = spark.sql(JOINED).cache()
    try:
        assert cached.limit(1).count() == 1
        assert "InMemoryRelation" in plan_of(cached) and pipelines_of(cached) == [1]
        for _ in range(2):
            assert rows_of(cached) == expected
        assert rows_of(cached.groupBy("name").count()) == rows_of(spark.sql(JOINED).groupBy("name").count())
    finally:
        cached.unpersist()


def test_views_and_tables(spark: SparkSession) -> None:
    with mode(spark, "off"):
        expected = rows_of(spark.sql(JOINED))
    spark.sql(f"CREATE TEMPORARY VIEW viewed AS {JOINED}")
    spark.sql("CREATE TABLE target (id BIGINT, v BIGINT, name STRING) USING parquet")
    try:
        assert_pipelined(assert_like_spark(spark, sql(spark, "SELECT * FROM viewed")), 1)
        spark.table("facts").withColumn("k", F.col("k") + 0).createOrReplaceTempView("fresh")
        frame = spark.sql(JOINED.replace("facts", "fresh"))
        spark.sql("CREATE TABLE created USING parquet AS " + JOINED.replace("facts", "fresh"))
        assert sparkext.report(frame).joins[0].rows_out == 16
        spark.sql("INSERT INTO target SELECT * FROM viewed")
        spark.sql("INSERT OVERWRITE target SELECT * FROM viewed")
        for table in ("created", "target"):
            assert rows_of(spark.table(table)) == expected
        told = spark.sql("EXPLAIN INSERT INTO target TABLE viewed").first()
        assert told is not None and "PipelinedJoin [inner: facts.k = dims.dk]" in told[0], told
    finally:
        for table in ("created", "target"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
        spark.catalog.dropTempView("viewed")


def test_merge_is_left_as_it_is(spark: SparkSession) -> None:
    """No source that PySpark ships supports MERGE: the error is Spark's own."""
    spark.sql("CREATE TABLE merged USING parquet AS SELECT * FROM dims")
    merge = "MERGE INTO merged t USING dims s ON t.dk = s.dk WHEN MATCHED THEN UPDATE SET w = 0"
    try:
        for name in ("auto", "off"):
            with (
                mode(spark, name),
                pytest.raises(UnsupportedOperationException, match="not support MERGE"),
            ):
                spark.sql(merge)
    finally:
        spark.sql("DROP TABLE merged")


def test_unions_and_self_joins(spark: SparkSession) -> None:
    union = f"{JOINED} UNION ALL SELECT {HINT} id, j, name FROM facts LEFT JOIN dims ON j = dk"
    assert_pipelined(assert_like_spark(spark, sql(spark, union)), 1, 1)
    itself = "SELECT /*+ PIPELINED_JOIN(b) */ a.id, b.v FROM facts a JOIN facts b ON a.k = b.id"
    assert_pipelined(assert_like_spark(spark, sql(spark, itself)), 1)
    facts = spark.table("facts")
    built = facts.alias("b").hint("pipelined_join")
    assert_pipelined(assert_like_spark(spark, lambda: facts.alias("a").join(built, F.expr("a.j = b.k"), "semi")), 1)


# --- actions ---


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT {HINT} count(*) FROM facts LEFT JOIN dims ON k = dk",
        f"SELECT {HINT} 1 AS one FROM facts JOIN dims ON k = dk",
        f"SELECT count(*) FROM (SELECT {HINT} * FROM facts LEFT ANTI JOIN dims ON k = dk)",
        f"SELECT {HINT} name FROM facts JOIN dims ON k = dk ORDER BY name LIMIT 3",
        f"SELECT count(*) FROM (SELECT {HINT} id FROM facts JOIN dims ON k = dk LIMIT 3)",
    ],
)
def test_few_columns_and_few_rows(spark: SparkSession, query: str) -> None:
    assert_pipelined(assert_like_spark(spark, sql(spark, query)), 1)


def test_every_action(spark: SparkSession, tmp_path: Path) -> None:
    with mode(spark, "off"):
        expected = rows_of(spark.sql(JOINED))
    count = sum(expected.values())
    frame = spark.sql(JOINED)
    assert_pipelined(frame, 1)
    assert frame.count() == count
    shown = io.StringIO()
    with redirect_stdout(shown):
        frame.show(2)
    assert "only showing top 2 rows" in shown.getvalue()
    assert len(frame.take(3)) == len(frame.limit(3).collect()) == len(frame.head(3)) == 3
    assert len(frame.tail(2)) == 2
    frame.write.parquet(str(tmp_path / "written"))
    assert rows_of(spark.read.parquet(str(tmp_path / "written"))) == expected

    def told(rows: Any) -> list[str]:
        return sorted(repr(tuple(row)) for row in rows)

    assert told(frame.rdd.collect()) == told(frame.toLocalIterator()) == sorted(expected.elements())
    assert told(frame.toPandas().itertuples(index=False, name=None)) == sorted(expected.elements())
    seen = spark.sparkContext.accumulator(0)
    frame.foreachPartition(lambda rows: seen.add(sum(1 for _ in rows)))
    assert seen.value == count
    assert rows_of(frame.checkpoint() if spark.sparkContext.getCheckpointDir() else frame.localCheckpoint()) == expected


def test_python_functions_around_a_join(spark: SparkSession) -> None:
    double = F.udf(lambda value: value * 2, "bigint")

    def query() -> DataFrame:
        facts = spark.table("facts").withColumn("k2", double("k"))
        dims = spark.table("dims").hint("pipelined_join")
        return facts.join(dims, facts.k2 == dims.dk).withColumn("both", double(F.col("w") + F.col("v")))

    assert_pipelined(assert_like_spark(spark, query), 1)


def test_a_streaming_join(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    spark.table("facts").write.parquet(source)
    stream = spark.readStream.schema(spark.table("facts").schema).parquet(source)
    dims = spark.table("dims").hint("pipelined_join")
    query = (
        stream.join(dims, stream.k == dims.dk)
        .writeStream.format("memory")
        .queryName("streamed")
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(120)
        assert query.exception() is None
        with redirect_stdout(io.StringIO()) as told:
            query.explain()
        assert "DeclinedPipelinedJoin: a streaming join" in without_names(told.getvalue())
        with mode(spark, "off"):
            expected = rows_of(spark.table("facts").join(spark.table("dims"), F.col("k") == F.col("dk")))
        assert rows_of(spark.table("streamed")) == expected
    finally:
        query.stop()


def test_a_batch_join_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """`foreachBatch` gets a batch DataFrame, so that the join is planned as usual."""
    source = str(tmp_path / "source")
    spark.table("facts").write.parquet(source)
    got: list[tuple[list[int], dict[str, int]]] = []

    def batch(rows: DataFrame, number: int) -> None:
        dims = rows.sparkSession.table("dims").hint("pipelined_join")
        joined = rows.join(dims, rows.k == dims.dk)
        got.append((pipelines_of(joined), rows_of(joined)))

    stream = spark.readStream.schema(spark.table("facts").schema).parquet(source)
    stream.writeStream.foreachBatch(batch).trigger(availableNow=True).start().awaitTermination(120)
    with mode(spark, "off"):
        expected = rows_of(spark.table("facts").join(spark.table("dims"), F.col("k") == F.col("dk")))
    assert got == [([1], expected)]


# --- output for users ---


def explained(spark: SparkSession, style: str, query: str) -> str:
    told = spark.sql(f"EXPLAIN {style} {query}").first()
    assert told is not None
    return without_names(str(told[0]))


def test_explain(spark: SparkSession) -> None:
    chain = f"SELECT {HINTS} id, name, label FROM facts JOIN dims ON k = dk LEFT JOIN more ON j = ek"
    line = "PipelinedJoin [inner: facts.k = dims.dk; left: facts.j = more.ek] scan=rows from Spark"
    assert line in explained(spark, "", chain)
    assert line in explained(spark, "EXTENDED", chain)
    assert line in explained(spark, "COST", chain)
    formatted = explained(spark, "FORMATTED", chain)
    for part in (
        "Join 1: inner, facts.k = dims.dk, algorithm auto",
        "Join 2: left, facts.j = more.ek, algorithm auto",
        "Scan: rows from Spark (",
        "The rows of child 1 (the probe side) stream through all joins in one pass",
    ):
        assert part in formatted, formatted
    declined = f"SELECT {HINT} id, name FROM facts FULL JOIN dims ON k = dk AND soundex(name) <> 'D001'"
    assert "DeclinedPipelinedJoin: a condition in addition to the keys of a full outer join" in explained(
        spark, "", declined
    )
    assert "Reason: a condition in addition to the keys of a full outer join" in explained(spark, "FORMATTED", declined)
    assert_declined(
        assert_like_spark(spark, sql(spark, declined)), "a condition in addition to the keys of a full outer join"
    )


def test_fallback_is_logged_if_asked_for(spark: SparkSession) -> None:
    logging = spark.sparkContext._jvm.org.apache.logging.log4j
    name = "org.apache.spark.sql.sparkext.planning.PipelinedJoinStrategy"
    text = spark.sparkContext._jvm.java.io.StringWriter()
    appender = logging.core.appender.WriterAppender.createAppender(None, None, text, "captured", False, True)
    appender.start()
    logger = logging.LogManager.getLogger(name)
    logging.core.config.Configurator.setLevel(name, logging.Level.WARN)
    logger.addAppender(appender)
    query = f"SELECT {HINT} id, name FROM facts FULL JOIN dims ON k = dk AND soundex(name) <> 'D001'"
    try:
        spark.sql(query).explain()
        assert "instead of a pipeline" not in text.toString()
        with configured(spark, spark_sparkext_explainFallback="true"):
            assert_declined(spark.sql(query), "a condition in addition to the keys of a full outer join")
        assert (
            "Spark's own join runs instead of a pipeline: a condition in addition to the keys of a full"
            in without_names(text.toString())
        )
    finally:
        logger.removeAppender(appender)
        logging.core.config.Configurator.setLevel(name, logging.Level.ERROR)


def operator_of(frame: DataFrame) -> Any:
    """Return the pipeline's operator in the executed plan."""
    plan = frame._jdf.queryExecution().executedPlan()
    waiting = [plan.executedPlan() if plan.nodeName() == "AdaptiveSparkPlan" else plan]
    while waiting:
        plan = waiting.pop()
        if plan.nodeName() == "PipelinedJoin":
            return plan
        waiting += [plan.children().apply(number) for number in range(plan.children().size())]
    raise AssertionError("no pipeline in this plan")


def test_metrics(spark: SparkSession) -> None:
    with configured(spark, spark_sql_adaptive_enabled="false"):
        frame = assert_like_spark(
            spark, sql(spark, f"SELECT {HINTS} * FROM facts JOIN dims ON k = dk JOIN more ON j = ek")
        )
        assert_pipelined(frame, 2)
        metrics = operator_of(frame).metrics()
        values = {name: metrics.apply(name).value() for name in ("buildRows", "probeRows", "numOutputRows")}
        assert values == {"buildRows": 7, "probeRows": 20, "numOutputRows": 16}
        positive = (
            "buildBytes",
            "indexBytes",
            "morsels",
            "kernelTime",
            "smallestBudget",
            "medianBudget",
            "largestBudget",
        )
        for name in (*positive, "transferTime", "lowestHeadroom"):
            assert metrics.apply(name).value() > 0, name


def test_metrics_under_adaptive_execution(spark: SparkSession) -> None:
    frame = spark.sql(JOINED)
    frame.collect()
    assert operator_of(frame).metrics().apply("numOutputRows").value() == 16
    frame.collect()
    assert operator_of(frame).metrics().apply("probeRows").value() == 20


def test_a_report(spark: SparkSession) -> None:
    chain = f"SELECT {HINTS} id, name, label FROM facts JOIN dims ON k = dk LEFT JOIN more ON j = ek"
    # A count needs no rows from workers: each of two tasks sends one partial count.
    for act, sink in ((DataFrame.collect, ("gather payload", 16, 16)), (DataFrame.count, ("group", 16, 2))):
        fresh = spark.table("facts").withColumn("j", F.col("j") + 0)
        fresh.createOrReplaceTempView("reported")
        frame = spark.sql(chain.replace("facts", "reported"))
        assert_pipelined(frame, 2)
        with pytest.raises(sparkext.SparkExtError, match="has not run yet"):
            sparkext.report(frame)
        act(frame)
        told = sparkext.report(frame)
        assert [(join.operator, join.rows_in, join.rows_out) for join in told.joins] == [
            ("inner reported.k = dims.dk", 20, 16),
            ("left reported.j = more.ek", 16, 16),
            sink,
        ]
        assert "inner reported.k = dims.dk" in str(told)
        assert "<svg" in told._repr_html_() and not told.notes
    with pytest.raises(sparkext.SparkExtError, match="has no pipelined join"):
        sparkext.report(spark.sql(JOINED.replace(HINT, "")))


def test_a_report_is_of_runs_of_this_dataframe(spark: SparkSession) -> None:
    """Its input without the filter has the same join, but is not reported. Runs of DataFrames derived from it are."""
    facts, dims = spark.table("facts"), spark.table("dims").hint("pipelined_join")
    whole = facts.join(dims, F.col("k") == F.col("dk"))
    few = facts.where("id < 4").join(dims, F.col("k") == F.col("dk"))
    for frame in (whole, few):
        assert_pipelined(frame, 1)
    whole.collect()
    with pytest.raises(sparkext.SparkExtError, match="has not run yet"):
        sparkext.report(few)
    few.select("id").where("id > 0").collect()
    assert sparkext.report(few).joins[0].rows_in == 3
    assert sparkext.report(whole).joins[0].rows_in == 20
    few.write.format("noop").mode("overwrite").save()
    assert sparkext.report(few).joins[0].rows_in == 4
    again = facts.where("id < 4").join(dims, F.col("k") == F.col("dk"))
    assert sparkext.report(again).joins[0].rows_in == 4, "the same plan, though another object"
    len(few.rdd.collect())
    assert sparkext.report(few).joins[0].rows_in == 4


def test_a_report_of_a_join_with_a_condition(spark: SparkSession) -> None:
    """Pairs that fail the condition are not counted as results."""
    frame = spark.sql(JOINED.replace("JOIN dims", "LEFT JOIN dims") + " AND v <> w")
    assert_pipelined(frame, 1)
    assert len(frame.collect()) == 20
    join, gather = sparkext.report(frame).joins
    assert join.rows_out == gather.rows_in == 20
    assert join.pairs_tried == 16 + 8  # 4 of the 16 pairs fail the condition, and 8 rows are emitted without a match


def test_a_report_of_one_of_two_pipelines(spark: SparkSession) -> None:
    """An aggregate separates the pipelines: the report covers the upper one, and mentions that there are two."""
    counts = f"SELECT {HINT} k, count(*) AS n FROM facts JOIN dims ON k = dk GROUP BY k"
    frame = spark.sql(f"SELECT /*+ PIPELINED_JOIN(more) */ n, label FROM ({counts}) c JOIN more ON c.k = ek")
    frame.collect()
    told = sparkext.report(frame)
    assert [join.operator for join in told.joins] == ["inner c.k = more.ek", "gather payload"]
    assert told.notes == (
        "The plan has 2 pipelines, and this report is about the topmost. Spark's UI shows the metrics of each pipeline,"
        " at its operator PipelinedJoin.",
    )
    assert told.notes[0] in str(told)
