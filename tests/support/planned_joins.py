"""Checks that the extension's tests share: the operator in a plan, and the comparison with Spark's own join."""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sparkext import declined
from tests.support.class_archive import archive_options

MODE = "spark.sparkext.mode"
QUICK_START = " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive_options()])
"""JVM options with which the processes of a small cluster start quickly."""

ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "pssst",
    "spark.network.crypto.enabled": "true",
}
"""Settings that encrypt the connections between processes, including shuffled and broadcast blocks."""

_PIPELINE = re.compile(r"PipelinedJoin \[(.*?)\] scan=")
_SCAN = re.compile(r"PipelinedJoin \[(.*?)\] scan=(fused|(?:rows|columns) from Spark \()(.*)")
_OURS = re.compile(
    r"(^|/)sparkext(-[^/]*)?(/|$)|\.(build|lock|part|report|sorted)$|(^|/)(?!shuffle_)[^/]+\.index$"  # not Spark's
)
"""Files of this package: everything in its folders, and the files that workers write next to Spark's broadcasts."""

_SPARK_JOIN = re.compile(
    r"\b(BroadcastHashJoin|SortMergeJoin|ShuffledHashJoin|BroadcastNestedLoopJoin|CartesianProduct)\b"
)


@contextmanager
def configured(spark: SparkSession, **settings: object) -> Iterator[None]:
    """Set configuration keys, written with underscores instead of dots, and restore them afterwards."""
    keys = {key.replace("_", "."): str(value) for key, value in settings.items()}
    before = {key: spark.conf.get(key, None) for key in keys}
    for key, value in keys.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            spark.conf.unset(key) if old is None else spark.conf.set(key, old)


@contextmanager
def started_with(spark: SparkSession, key: str, value: object) -> Iterator[None]:
    """Set a setting that only an application can set at its start, as if it had, and restore it afterwards."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get(key) if conf.contains(key) else None
    conf.set(key, str(value))
    try:
        yield
    finally:
        conf.remove(key) if before is None else conf.set(key, before)


def mode(spark: SparkSession, name: str) -> object:
    """Switch the extension's mode, and restore it afterwards."""
    return configured(spark, **{"spark_sparkext_mode": name})


def plan_of(df: DataFrame) -> str:
    """Return the executed plan; after adaptive execution, the final plan without the initial ones."""
    lines: list[str] = []
    initial = None  # depth within an initial plan; each subquery has its own
    for line in str(df._jdf.queryExecution().executedPlan().toString()).splitlines():
        depth = len(line) - len(line.lstrip(" :+-"))
        if initial is not None and depth >= initial:
            continue
        initial = depth if line.endswith("== Initial Plan ==") else None
        if initial is None:
            lines.append(line)
    return "\n".join(lines)


def pipelines_of(df: DataFrame) -> list[int]:
    """Return the number of joins of each pipeline in the plan, top down."""
    return [joins.count("; ") + 1 for joins in _PIPELINE.findall(plan_of(df))]


def scans_of(df: DataFrame) -> list[tuple[int, bool, str]]:
    """Return for each pipeline: the number of fused build sides, whether its probe side is fused, and the reason."""
    return [(joins.count("(fused)"), how == "fused", said) for joins, how, said in _SCAN.findall(plan_of(df))]


def assert_pipelined(df: DataFrame, *joins: int) -> None:
    """Assert that the plan has pipelines of these numbers of joins, top down, and no join of Spark."""
    assert pipelines_of(df) == list(joins), plan_of(df)
    assert not _SPARK_JOIN.search(plan_of(df)), plan_of(df)


def assert_declined(df: DataFrame, reason: str) -> None:
    """Assert that Spark's own joins run, and that both the plan and `declined` give this reason."""
    plan = plan_of(df)
    assert pipelines_of(df) == [], plan
    assert _SPARK_JOIN.search(plan), plan
    assert f"DeclinedPipelinedJoin: {reason}" in plan, plan
    assert any(told.startswith(reason) for told in declined(df)), declined(df)


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


def rows_of(df: DataFrame) -> Counter[str]:
    """Return the rows as a multiset of texts. They distinguish null, NaN, -0.0 and decimals of different scales."""
    return Counter(repr(tuple(row)) for row in df.collect())


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


def open_to_others(folder: Path) -> tuple[int, dict[str, str]]:
    """Return the number of this package's files below a folder, and the mode of each path that is not private."""
    ours = [path for path in folder.rglob("*") if _OURS.search(str(path.relative_to(folder)))]
    wrong = {}
    for path in ours:
        status = path.lstat()
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        if stat.S_IMODE(status.st_mode) != wanted:
            wrong[str(path.relative_to(folder))] = oct(status.st_mode)
    return sum(path.is_file() for path in ours), wrong
