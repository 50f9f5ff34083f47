"""Text that `spark.sql.redaction.string.regex` covers appears nowhere: not in plans, reasons, jobs or reports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import sparkext
from tests.support.planned_joins import assert_like_spark, pipelines_of, reasons_of
from tests.support.sessions import configured

SECRET = "hunter2"
REDACTED = "*********(redacted)"
CONDITION = f"k = dk AND (s <> name OR s <> '{SECRET}')"


@pytest.fixture(autouse=True)
def _redacting(spark: SparkSession, tmp_path: Path) -> Iterator[None]:
    spark.range(20).selectExpr("id", "id % 5 AS k", "concat('a', id) AS s").write.parquet(str(tmp_path / "facts"))
    spark.read.parquet(str(tmp_path / "facts")).createOrReplaceTempView("facts")
    spark.range(4).selectExpr("id AS dk", "concat('d', id) AS name").createOrReplaceTempView("dims")
    with configured(spark, spark_sql_redaction_string_regex="hunter\\d"):
        yield
    spark.catalog.dropTempView("facts")
    spark.catalog.dropTempView("dims")


def query(spark: SparkSession, condition: str, kind: str = "LEFT") -> DataFrame:
    return spark.sql(f"SELECT /*+ PIPELINED_JOIN(dims) */ id, s, name FROM facts {kind} JOIN dims ON {condition}")


def shown(df: DataFrame) -> str:
    """Return the texts of a plan's pipelined operators as the UI shows them. Spark redacts only a complete EXPLAIN."""
    plan = df._jdf.queryExecution().executedPlan()
    nodes = [plan]
    texts = []
    while nodes:
        node = nodes.pop()
        texts += [node.simpleString(1000), node.verboseStringWithOperatorId()]
        children = node.children()
        nodes += [children.apply(number) for number in range(children.length())]
    return "\n".join(text for text in texts if "Pipelined" in text)


def test_conditions_and_filters(spark: SparkSession) -> None:
    with configured(spark, spark_sql_adaptive_enabled="false"):
        df = assert_like_spark(spark, lambda: query(spark, CONDITION).where(f"s <> '{SECRET}'"))
        assert pipelines_of(df) == [1]
        told = shown(df)
        assert told.count(REDACTED) >= 2 and "filter" in told and SECRET not in told, told
        df.collect()
        report = sparkext.report(df)
        assert REDACTED in str(report)
        frames = [report.to_pandas(), report.decisions_to_pandas()]
        for text in (str(report), report._repr_html_(), *(frame.to_json() for frame in frames)):
            assert SECRET not in text, text


def test_descriptions_of_jobs_and_of_what_fell_back(spark: SparkSession) -> None:
    store = spark.sparkContext._jsc.sc().statusStore()
    with configured(
        spark,
        spark_sparkext_partitioned="never",
        spark_sparkext_buildSide_maxBytes=1,
        spark_sql_adaptive_enabled="false",
    ):
        df = query(spark, CONDITION)
        df.collect()
    for told in (shown(df), *reasons_of(df)):
        assert "does not fit" in told and REDACTED in told and SECRET not in told, told
    query(spark, CONDITION).collect()
    jobs = store.jobsList(None)
    said = [jobs.apply(number).description() for number in range(jobs.size())]
    described = [text.get() for text in said if text.isDefined() and "build side" in text.get()]
    assert any(REDACTED in text for text in described) and not any(SECRET in text for text in described), described


def test_reasons(spark: SparkSession) -> None:
    df = assert_like_spark(spark, lambda: query(spark, f"k = dk AND reverse(concat(s, name, '{SECRET}')) <> s"))
    assert pipelines_of(df) == []
    (reason,) = reasons_of(df)
    assert reason.startswith("a condition in addition to the keys of a left outer join, which only Spark evaluates")
    assert SECRET not in reason and REDACTED in reason
    assert SECRET not in shown(df)


def test_as_of_reasons(spark: SparkSession) -> None:
    df = spark.table("facts")._joinAsOf(
        spark.table("dims").hint("pipelined_join"),
        leftAsOfColumn="k",
        rightAsOfColumn="dk",
        on=spark.table("facts").s == SECRET,
    )
    reasons = reasons_of(df)
    assert reasons and SECRET not in json.dumps(reasons) and REDACTED in json.dumps(reasons), reasons
