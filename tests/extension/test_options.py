"""Options of a session: unreadable values fail no query; the application sets options that affect all sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparkext.api.join import pipelined_join
from sparkext.cli.finding import Status
from sparkext.cli.session_checks import check_options
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
from tests.support.sessions import configured, started_with

HINTED = "SELECT /*+ PIPELINED_JOIN(b) */ a.id, b.w FROM a JOIN b ON a.k = b.k"
PLAIN = HINTED.replace("/*+ PIPELINED_JOIN(b) */", "")
COMET = "org.apache.spark.CometPlugin"
BESIDE_COMET = (
    "not hinted, and Comet replaces Spark's operators in this session: the cost model covers only Spark's own operators"
)


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    spark.range(50).selectExpr("id", "id % 7 AS k").createOrReplaceTempView("a")
    spark.range(10).selectExpr("id AS k", "id * 2 AS w").createOrReplaceTempView("b")
    yield
    for name in ("a", "b"):
        spark.catalog.dropTempView(name)


@contextmanager
def logged(spark: SparkSession) -> Iterator[Any]:
    """Yield a writer that receives the log messages of planning."""
    logging: Any = spark._jvm.org.apache.logging.log4j
    name = "org.apache.spark.sql.sparkext.planning.Guarded"
    writer = spark._jvm.java.io.StringWriter()
    appender = logging.core.appender.WriterAppender.newBuilder().setName("options").setTarget(writer).build()
    appender.start()
    logger = logging.LogManager.getContext(False).getLogger(name)
    logging.core.config.Configurator.setLevel(name, logging.Level.WARN)
    logger.addAppender(appender)
    try:
        yield writer
    finally:
        logger.removeAppender(appender)
        logging.core.config.Configurator.setLevel(name, logging.Level.ERROR)


def settings(spark: SparkSession) -> Any:
    """Return the settings as planning reads them."""
    return spark._jvm.org.apache.spark.sql.sparkext.protocol.Settings(spark._jsparkSession.sessionState().conf())


# --- unreadable values ---


def test_values_are_read_in_any_case(spark: SparkSession) -> None:
    with mode(spark, "OFF"):
        assert pipelines_of(spark.sql(HINTED)) == [] and reasons_of(spark.sql(HINTED)) == []
    with mode(spark, " Hint "), configured(spark, spark_sparkext_algorithm="SORT_MERGE"):
        out = assert_like_spark(spark, lambda: spark.sql(HINTED))
        assert_pipelined(out, 1)
        assert "options=" not in plan_of(out)


def test_an_unreadable_mode_is_off(spark: SparkSession) -> None:
    reason = "spark.sparkext.mode: got 'of', expected one of auto, hint, off; off is used"

    def near() -> DataFrame:
        left, right = spark.table("a"), spark.table("b").hint("pipelined_join")
        return left._joinAsOf(right, leftAsOfColumn="id", rightAsOfColumn="w").select("id", "w")

    with mode(spark, "of"):
        out = assert_like_spark(spark, lambda: spark.sql(HINTED))
        assert_declined(out, reason)
        told = spark.sql(f"EXPLAIN {HINTED}").first()
        assert told is not None and f"DeclinedPipelinedJoin: {reason}" in without_names(told[0])
        assert set(reasons_of(assert_like_spark(spark, near))) == {reason}
        assert spark.sql("SELECT k, count(*) FROM a GROUP BY k").count() == 7
        joined = spark.table("a").transform(pipelined_join(spark.table("b"), "k"))
        assert joined.count() == 50 and pipelines_of(joined) == []  # through mapInArrow, as in mode off


@pytest.mark.parametrize(
    ("key", "value", "expected", "used"),
    [
        ("explainFallback", "yes", "true or false", "false"),
        ("buildSide.maxBytes", "a lot", "a byte size of at least 1, such as 512m or 4g", "4g"),
        ("algorithm", "nested", "one of auto, hash, sort_merge", "auto"),
        ("morsel.maxRows", "0", "an integer of at least 1", "131072"),
        ("memory.fraction", "1.5", "a number above 0 and at most 1", "0.5"),
        (
            "debug.hashMask",
            "ff",
            "an integer from 0 to 0xffffffffffffffff, decimal or hexadecimal",
            "0xffffffffffffffff",
        ),
    ],
)
def test_other_unreadable_values_are_replaced(
    spark: SparkSession, key: str, value: str, expected: str, used: str
) -> None:
    name = f"spark.sparkext.{key}"
    problem = f"{name}: got '{value}', expected {expected}; {used} is used"
    with configured(spark, {name: value}):
        assert settings(spark).forWorkers().apply(name) == used
        out = spark.sql(HINTED)
        assert_pipelined(out, 1)
        assert f"options={problem}" in plan_of(out)
        assert check_options(spark).status is Status.WARN and problem.replace('"', "'") in str(check_options(spark))


def test_unreadable_values_fail_no_query(spark: SparkSession) -> None:
    """Workers receive the readable values; reasons for declining end with the problems that may have caused them."""
    wrong = {
        "spark_sparkext_morsel_maxRows": 10,
        "spark_sparkext_morsel_minRows": 20,
        "spark_sparkext_memory_fraction": "much",
        "spark_sparkext_algorithm": "many",
        "spark_sparkext_partitioned": "sometimes",
    }
    with configured(spark, **wrong):
        out = assert_like_spark(spark, lambda: spark.sql(HINTED))
        assert_pipelined(out, 1)
        few = "minRows: got '20', expected at most spark.sparkext.morsel.maxRows, which is 10; 10 is used"
        assert few in plan_of(out)
        tested = HINTED.replace("JOIN b ON", "FULL JOIN b ON soundex(string(w)) <> 'D001' AND")
        (reason,) = reasons_of(spark.sql(tested))
        assert reason.startswith("a condition in addition to the keys of a full outer join") and reason.endswith(few)


def test_problems_are_logged_once(spark: SparkSession) -> None:
    values = {"spark_sparkext_algorithm": "two", "spark_sparkext_mod": "off", "spark_sparkext_quite_else": 1}
    with logged(spark) as writer, configured(spark, **values):
        for _ in range(2):
            plan_of(spark.sql(HINTED))
    lines = [line for line in str(writer.toString()).splitlines() if line]
    assert len(lines) == 3, lines
    assert "spark.sparkext.algorithm: got 'two', expected one of auto, hash, sort_merge; auto is used" in lines[0]
    assert "spark.sparkext.mod: unknown key, did you mean spark.sparkext.mode?" in lines[1]
    assert "spark.sparkext.quite.else: unknown key, available: spark.sparkext.mode, " in lines[2]


# --- options of the application ---


def test_sessions_do_not_set_what_affects_others(spark: SparkSession) -> None:
    """Otherwise, SQL users could empty the index cache that all sessions share, or let a task ignore memory limits."""
    other = spark.newSession()
    keys = {"spark.sparkext.indexCache.maxBytes": "0", "spark.sparkext.debug.joinOrder": "query"}
    for key, value in keys.items():
        other.sql(f"SET {key}={value}")
    assert {key: settings(other).forWorkers().apply(key) for key in keys} == keys  # as this application allows it
    with started_with(spark, "spark.sparkext.debug.sessions", "false"):
        other.sql("SET spark.sparkext.debug.sessions=true")
        found = settings(other)
        assert not any(found.forWorkers().contains(key) for key in keys)
        problem = "indexCache.maxBytes: got '0', expected a value only when the application starts; 16g is used"
        assert problem in str(found.problems())
        with started_with(spark, "spark.sparkext.indexCache.maxBytes", "8g"):
            assert settings(other).forWorkers().apply("spark.sparkext.indexCache.maxBytes") == "8g"


# --- together with engines that replace Spark's operators ---


def test_auto_leaves_unhinted_joins_to_a_columnar_engine(spark: SparkSession) -> None:
    """The session names Comet's real plugin class, without loading it."""
    takes_all = configured(
        spark, spark_sparkext_mode="auto", spark_sql_autoBroadcastJoinThreshold=-1, spark_sql_adaptive_enabled="false"
    )
    grouped = "SELECT /*+ PIPELINED_JOIN(b) */ w, count(*) FROM a JOIN b ON a.k = b.k GROUP BY w"
    with takes_all, started_with(spark, "spark.plugins", f"com.example.Plugin, {COMET}"):
        for adaptive in ("false", "true"):
            with configured(spark, spark_sql_adaptive_enabled=adaptive):
                out = assert_like_spark(spark, lambda: spark.sql(PLAIN))
                assert reasons_of(out) == [BESIDE_COMET]
                assert "Pipelined" not in plan_of(out)  # Comet would not replace operators above a note
        assert_pipelined(assert_like_spark(spark, lambda: spark.sql(HINTED)), 1)
        assert_pipelined(assert_like_spark(spark, lambda: spark.sql(grouped)), 1)
        left, right = spark.table("a"), spark.table("b")
        near = left._joinAsOf(right, leftAsOfColumn="id", rightAsOfColumn="w")
        assert pipelines_of(near) == [] and set(reasons_of(near)) == {BESIDE_COMET}
        assert_pipelined(left._joinAsOf(right.hint("pipelined_join"), leftAsOfColumn="id", rightAsOfColumn="w"), 1)
        out = left.transform(pipelined_join(right, "k"))
        assert_pipelined(out, 1)
        assert rows_of(out.select("id", "w")) == rows_of(spark.sql(PLAIN))
        with configured(spark, spark_comet_enabled="false"):
            assert reasons_of(spark.sql(PLAIN)) != [BESIDE_COMET]
        with mode(spark, "hint"):
            assert reasons_of(spark.sql(PLAIN)) == []


@pytest.mark.parametrize(
    ("key", "loaded", "switch", "name"),
    [
        ("spark.plugins", "org.apache.gluten.GlutenPlugin", "spark.gluten.enabled", "Gluten"),
        ("spark.plugins", "com.nvidia.spark.SQLPlugin", "spark.rapids.sql.enabled", "RAPIDS"),
        (
            "spark.sql.extensions",
            "io.sparkext.SparkExtensions,org.apache.spark.sql.auron.AuronSparkSessionExtension",
            "spark.auron.enable",
            "Auron",
        ),
    ],
)
def test_engines_are_known_by_their_classes(spark: SparkSession, key: str, loaded: str, switch: str, name: str) -> None:
    with mode(spark, "auto"):
        assert settings(spark).hintedOnly().isEmpty()
        with started_with(spark, key, loaded):
            assert name in settings(spark).hintedOnly().get()
            with configured(spark, {switch: "FALSE"}):
                assert settings(spark).hintedOnly().isEmpty()
