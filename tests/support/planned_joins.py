"""Checks that the extension's tests share: the operator in a plan, and the comparison with Spark's own join."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkext import declined
from tests.support.rows import rows_of
from tests.support.sessions import configured

MODE = "spark.sparkext.mode"
_NAME = re.compile(r"\[[A-Z][A-Z0-9_]{4,}\] ")
_PIPELINE = re.compile(r"PipelinedJoin \[(.*?)\] scan=")
_SCAN = re.compile(r"PipelinedJoin \[(.*?)\] scan=(fused|(?:rows|columns) from Spark \()(.*)")
SPARK_JOIN = re.compile(
    r"^[\s:+\-*()\d]*(BroadcastHashJoin|SortMergeJoin|ShuffledHashJoin|BroadcastNestedLoopJoin|CartesianProduct)\b",
    re.MULTILINE,
)
"""A join of Spark's own in the text of a plan."""


def mode(spark: SparkSession, name: str) -> AbstractContextManager[None]:
    """Switch the extension's mode, and restore it afterwards."""
    return configured(spark, {MODE: name})


def without_names(text: str) -> str:
    """Return a text without the names of reasons."""
    return _NAME.sub("", text)


def reasons_of(df: DataFrame) -> list[str]:
    """Return the reasons of declined joins, without their names."""
    return [without_names(reason) for reason in declined(df)]


def plan_of(df: DataFrame) -> str:
    """Return the executed plan without names of reasons; after adaptive execution, without the initial plans."""
    lines: list[str] = []
    initial = None  # depth within an initial plan; each subquery has its own
    for line in str(df._jdf.queryExecution().executedPlan().toString()).splitlines():
        depth = len(line) - len(line.lstrip(" :+-"))
        if initial is not None and depth >= initial:
            continue
        initial = depth if line.endswith("== Initial Plan ==") else None
        if initial is None:
            lines.append(line)
    return without_names("\n".join(lines))


def pipelines_of(df: DataFrame) -> list[int]:
    """Return the number of joins of each pipeline in the plan, top down."""
    return [joins.count("; ") + 1 for joins in _PIPELINE.findall(plan_of(df))]


def scans_of(df: DataFrame) -> list[tuple[int, bool, str]]:
    """Return for each pipeline: the number of fused build sides, whether its probe side is fused, and the reason."""
    return [(joins.count("(fused)"), how == "fused", said) for joins, how, said in _SCAN.findall(plan_of(df))]


def assert_pipelined(df: DataFrame, *joins: int) -> None:
    """Assert that the plan has pipelines of these numbers of joins, top down, and no join of Spark."""
    assert pipelines_of(df) == list(joins), plan_of(df)
    assert not SPARK_JOIN.search(plan_of(df)), plan_of(df)


def assert_declined(df: DataFrame, reason: str) -> None:
    """Assert that Spark's own joins run, and that both the plan and `declined` give this reason, with a name."""
    plan = plan_of(df)
    assert pipelines_of(df) == [], plan
    assert SPARK_JOIN.search(plan), plan
    assert f"DeclinedPipelinedJoin: {reason}" in plan, plan
    assert any(told.startswith(reason) for told in reasons_of(df)), declined(df)
    assert all(_NAME.match(told) for told in declined(df)), declined(df)


def metrics_of(df: DataFrame) -> dict[str, int]:
    """Return the metrics of the executed plan: those of the pipeline and of its probe side's scan."""
    found: dict[str, int] = {}

    def look(node: Any) -> None:
        kind = node.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec" or kind.endswith("QueryStageExec"):
            look(node.executedPlan() if kind == "AdaptiveSparkPlanExec" else node.plan())
            return
        names = node.metrics().keys().iterator()
        while names.hasNext():
            name = names.next()
            found.setdefault(name, node.metrics().apply(name).value())
        for number in range(node.children().size()):
            look(node.children().apply(number))

    look(df._jdf.queryExecution().executedPlan())
    return found


def assert_like_spark(spark: SparkSession, query: Callable[[], DataFrame]) -> DataFrame:
    """Assert that the query gives the same rows with Spark's own joins; return the DataFrame of the present mode.

    `query` is called once for each mode, because the mode is read when a query is planned.
    """
    ours = query()
    got = rows_of(ours)
    with mode(spark, "off"):
        own = query()
        assert not pipelines_of(own) and "Declined" not in plan_of(own)
        expected = rows_of(own)
    assert [(f.name, f.dataType, f.nullable) for f in ours.schema] == [
        (f.name, f.dataType, f.nullable) for f in own.schema
    ]
    assert got == expected, f"missing {expected - got}, surplus {got - expected}"
    return ours
