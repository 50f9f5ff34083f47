"""Checks that the Spark tests share: comparison with Spark's own join, and proof of the executed path."""

from __future__ import annotations

import operator
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from sparkext import pipelined_join
from sparkext.joins.lineage import find_lineage
from tests.support.combinations import function_of, runs_whole
from tests.support.planned_joins import SPARK_JOIN
from tests.support.sql import quoted

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "==": operator.eq,
    "<=>": lambda one, other: one.eqNullSafe(other),
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

KINDS = ("inner", "left", "right", "full", "semi", "anti")

_CROSSING = re.compile(r"^[\s:+\-*()\d]*(?:Python)?MapInArrow\b", re.MULTILINE)
_PLANNED = re.compile(r"^[\s:+\-*()\d]*PipelinedJoin \[(.*?)\] scan=", re.MULTILINE)

EXTENSION = os.environ.get("SPARKEXT_TEST_EXTENSION") == "1"
"""Whether these tests run in a session with the extension, in which the transform is a hint that Catalyst plans."""

PLANNED: Counter[bool] = Counter()
"""With the extension: the number of checked plans with a pipeline (True) and without (False)."""


def physical_plan(df: DataFrame) -> str:
    """Return the initial plan, before adaptive execution changes it."""
    if type(df).__module__.startswith("pyspark.sql.connect"):
        return str(df._explain_string())
    return str(df._jdf.queryExecution().executedPlan().toString())


def assert_pipelined(df: DataFrame, joins: int | None = None, crossings: int = 1) -> None:
    """Assert that `df` runs as a pipeline: `crossings` MapInArrow nodes and no join of Spark.

    `joins` is the number of joins of the pipeline at the top of `df`; None for a DataFrame derived from one. A right or
    full join has a second crossing, which reads the build side's keys.
    """
    plan = physical_plan(df)
    if EXTENSION and not _CROSSING.search(plan):
        _is_planned(plan)
        return
    assert len(_CROSSING.findall(plan)) == crossings, plan
    assert not SPARK_JOIN.search(plan), plan
    if joins is not None:
        lineage = find_lineage(df)
        assert lineage is not None, "not returned by pipelined_join"
        assert len(lineage.spec.joins) == joins


def _is_planned(plan: str) -> bool:
    """Return whether Catalyst planned a pipeline; assert that every join of Spark has been declined with a reason.

    Catalyst may also drop joins with sides that are known to be empty.
    """
    planned = bool(_PLANNED.search(plan))
    PLANNED[planned] += 1
    assert not SPARK_JOIN.search(plan) or "DeclinedPipelinedJoin: " in plan, plan
    return planned


def rows_of(df: DataFrame) -> Counter[str]:
    """Return the rows as a multiset of texts. They distinguish null, NaN, -0.0 and decimals of different scales.

    Rows are collected like `toArrow`, without its cast, which fails for null structs with NOT NULL fields.
    """
    if type(df).__module__.startswith("pyspark.sql.connect"):
        table = df._to_table()[0]
    elif df.sparkSession.version >= "4":
        table = pa.Table.from_batches(df._collect_as_arrow(empty_list_if_zero_records=False))
    else:
        batches = df._collect_as_arrow()
        table = pa.Table.from_batches(batches, batches[0].schema if batches else pa.schema([]))
    utc = [column.cast(pa.timestamp("us", "UTC")) if _is_zoned(column.type) else column for column in table.columns]
    rows = zip(*(column.to_pylist() for column in utc), strict=True) if utc else [()] * table.num_rows
    return Counter(map(repr, rows))


def _is_zoned(arrow_type: pa.DataType) -> bool:
    return pa.types.is_timestamp(arrow_type) and arrow_type.tz is not None


def assert_same_rows(expected: DataFrame, actual: DataFrame) -> Counter[str]:
    """Assert equal schemas (names, types, nullability, metadata), and equal multisets of rows. Return the rows."""
    assert actual.schema == expected.schema, f"\nexpected {expected.schema}\ngot      {actual.schema}"
    want, got = rows_of(expected), rows_of(actual)
    assert got == want, f"\nmissing: {_few(want - got)}\nextra:   {_few(got - want)}"
    return got


def _few(rows: Counter[str]) -> str:
    shown = [f"{count} × {row}" for row, count in sorted(rows.items())[:10]]
    return f"{rows.total()} rows\n  " + "\n  ".join(shown)


def spark_join(left: DataFrame, right: DataFrame, on: Any, how: str) -> DataFrame:
    """Return Spark's own join for the `on` of a `pipelined_join`."""
    if on is None:
        return left.crossJoin(right)
    if isinstance(on, str) or all(isinstance(name, str) for name in on):
        return left.join(right, on, how)
    condition = None
    for pair in on:
        one, other = left[quoted(pair[0])], right[quoted(pair[-1])]
        term = _OPERATORS[pair[1] if len(pair) == 3 else "="](one, other)
        condition = term if condition is None else condition & term
    return left.join(right, condition, how)


def crossings_of(how: str) -> int:
    return 2 if how.lower().replace("_", "") in ("right", "rightouter", "full", "outer", "fullouter") else 1


def assert_like_spark(
    left: DataFrame, right: DataFrame, on: Any, how: str = "inner", **options: Any
) -> tuple[DataFrame, Counter[str]]:
    """Compare a pipelined join with Spark's. The first join of each test function is also run partitioned.

    Return the pipeline's DataFrame and the rows.
    """
    actual = left.transform(pipelined_join(right, on, how, **options))
    assert_pipelined(actual, joins=1, crossings=crossings_of(how))
    expected = spark_join(left, right, on, how)
    if left.sparkSession.version >= "4.1" and has_equality(on) and _runs_partitioned():
        by_partition = left.transform(pipelined_join(right, on, how, partitioned=True, **options))
        assert_partitioned(by_partition, joins=1)
        assert_same_rows(expected, by_partition)
    return actual, assert_same_rows(expected, actual)


_PARTITIONED_FUNCTIONS = set[str]()


def _runs_partitioned() -> bool:
    """Return whether to run a join partitioned, too: all joins with `--whole`, else the first of each function."""
    function = function_of(os.environ["PYTEST_CURRENT_TEST"])
    is_first = function not in _PARTITIONED_FUNCTIONS
    _PARTITIONED_FUNCTIONS.add(function)
    return is_first or runs_whole()


def has_equality(on: Any) -> bool:
    """Return whether a join with this `on` can be partitioned."""
    items = [on] if isinstance(on, str) else on or []
    return any(isinstance(item, str) or len(item) == 2 or item[1] in ("=", "==", "<=>") for item in items)


def assert_partitioned(df: DataFrame, joins: int | None = None) -> None:
    """Assert that `df` is joined by partition: both sides are shuffled as blocks, which are received once."""
    plan = physical_plan(df)
    if EXTENSION and not _CROSSING.search(plan):
        assert not _is_planned(plan) or " partitioned=" in plan, plan
        return
    assert len(_CROSSING.findall(plan)) == 3 and not SPARK_JOIN.search(plan), plan
    assert re.search(r"Exchange (hashpartitioning\(partition#\d+, \d+\)|SinglePartition), REPARTITION_BY_NUM", plan), (
        plan
    )
    lineage = find_lineage(df)
    assert joins is None or (lineage is not None and len(lineage.spec.joins) == joins)


def jobs_run_by(spark: SparkSession, action: Callable[[], object]) -> int:
    """Return the number of Spark jobs that `action` starts."""
    context = spark.sparkContext
    tracker = context._jsc.sc().statusTracker()
    group = "sparkext-test"
    context.setJobGroup(group, group)
    before = len(tracker.getJobIdsForGroup(group))
    try:
        action()
    finally:
        context._jsc.clearJobGroup()
    return len(tracker.getJobIdsForGroup(group)) - before


def column_values(df: DataFrame, name: str) -> Sequence[Any]:
    return [row[0] for row in df.select(quoted(name)).collect()]


def every(*groups: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return the cartesian product as a list, for parametrisation."""
    from itertools import product

    return list(product(*groups))
