"""What the extension's tests share: which operator a plan has, and whether Spark's own join gives the same rows."""

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
from tests.class_archive import archive_options

MODE = "spark.sparkext.mode"
QUICK_START = " ".join(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive_options()])
"""How the processes of a small cluster start quickly."""

ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "pssst",
    "spark.network.crypto.enabled": "true",
}
"""How they talk to each other in secret: blocks that are shuffled and broadcast, too."""

_PIPELINE = re.compile(r"PipelinedJoin \[(.*?)\] scan=")
_SCAN = re.compile(r"PipelinedJoin \[(.*?)\] scan=(fused|(?:rows|columns) from Spark \()(.*)")
_OURS = re.compile(
    r"(^|/)sparkext(-[^/]*)?(/|$)|\.(build|lock|part|report|sorted)$|(^|/)(?!shuffle_)[^/]+\.index$"  # those of Spark's
)
"""What is in folders of this package's, and what workers put beside broadcasts, which are Spark's."""

_SPARK_JOIN = re.compile(
    r"\b(BroadcastHashJoin|SortMergeJoin|ShuffledHashJoin|BroadcastNestedLoopJoin|CartesianProduct)\b"
)


@contextmanager
def configured(spark: SparkSession, **settings: object) -> Iterator[None]:
    """Set configuration keys, written with underscores for dots, and put them back."""
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
    """As if the application had been started with a setting that no session may change."""
    conf = spark.sparkContext._jsc.sc().conf()
    before = conf.get(key) if conf.contains(key) else None
    conf.set(key, str(value))
    try:
        yield
    finally:
        conf.remove(key) if before is None else conf.set(key, before)


def mode(spark: SparkSession, name: str) -> object:
    """Switch the extension's mode for a while."""
    return configured(spark, **{"spark_sparkext_mode": name})


def plan_of(df: DataFrame) -> str:
    """The plan that runs, or that ran in the end if adaptive execution has changed it."""
    lines: list[str] = []
    initial = None  # how deep below an initial plan we are: subqueries have one each
    for line in str(df._jdf.queryExecution().executedPlan().toString()).splitlines():
        depth = len(line) - len(line.lstrip(" :+-"))
        if initial is not None and depth >= initial:
            continue
        initial = depth if line.endswith("== Initial Plan ==") else None
        if initial is None:
            lines.append(line)
    return "\n".join(lines)


def pipelines_of(df: DataFrame) -> list[int]:
    """How many joins each pipeline of the plan has, top down."""
    return [joins.count("; ") + 1 for joins in _PIPELINE.findall(plan_of(df))]


def scans_of(df: DataFrame) -> list[tuple[int, bool, str]]:
    """Per pipeline: how many of its build sides are fused, whether its probe side is, and what is said of it."""
    return [(joins.count("(fused)"), how == "fused", said) for joins, how, said in _SCAN.findall(plan_of(df))]


def assert_pipelined(df: DataFrame, *joins: int) -> None:
    """Prove that the plan's joins are pipelines of so many joins, and none is Spark's."""
    assert pipelines_of(df) == list(joins), plan_of(df)
    assert not _SPARK_JOIN.search(plan_of(df)), plan_of(df)


def assert_declined(df: DataFrame, reason: str) -> None:
    """Prove that the plan's joins are Spark's, and that the plan and `declined` say why."""
    plan = plan_of(df)
    assert pipelines_of(df) == [], plan
    assert _SPARK_JOIN.search(plan), plan
    assert f"DeclinedPipelinedJoin: {reason}" in plan, plan
    assert any(told.startswith(reason) for told in declined(df)), declined(df)


def metrics_of(df: DataFrame) -> dict[str, int]:
    """The metrics of the plan that ran, of the pipeline and of the scan of its probe side."""
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
    """The rows as a multiset of texts, which tell null, NaN, -0.0 and decimals of different scales apart."""
    return Counter(repr(tuple(row)) for row in df.collect())


def assert_like_spark(spark: SparkSession, query: Callable[[], DataFrame]) -> DataFrame:
    """Run a query in the present mode and with Spark's own joins; return the former DataFrame.

    `query` is called once for each, as the mode is read when a plan is made.
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
    """How many files of this package lie below a folder, and which of them, or of their folders, others may enter."""
    ours = [path for path in folder.rglob("*") if _OURS.search(str(path.relative_to(folder)))]
    wrong = {}
    for path in ours:
        status = path.lstat()
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        if stat.S_IMODE(status.st_mode) != wanted:
            wrong[str(path.relative_to(folder))] = oct(status.st_mode)
    return sum(path.is_file() for path in ours), wrong
