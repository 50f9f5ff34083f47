"""Transforms in a session with the extension: Spark's own join methods with a hint, lazy and planned by Catalyst.

A join that the extension does not plan runs as Spark's own join, with the reason in the plan.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from sparkext.config import ALGORITHM, BUILD_SIDE_MAX_BYTES, PARTITIONED
from sparkext.joins.build_side import DriverBuildSide
from sparkext.joins.join_condition import JoinCondition
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.plans.pipeline.spec import AsOf
from sparkext.spark.frames import is_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HINT = "pipelined_join"
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_MICROSECONDS_PER_DAY = 86_400_000_000
_MOST_DAYS = 10**8
_MOST_UNITS = 2**62
_OPTIONS = {ALGORITHM.name: "algorithm", BUILD_SIDE_MAX_BYTES.name: "maxBytes", PARTITIONED.name: "partitioned"}


def join_by_names(
    frame: DataFrame,
    other: DriverBuildSide,
    condition: JoinCondition,
    resolved: ResolvedJoin,
    overrides: Mapping[str, object],
) -> DataFrame:
    """Join on the columns that `resolved` has found by name."""
    from pyspark.sql import functions as F

    build = _add_hint(other.frame(), overrides)
    how = resolved.spec.how
    if condition.using:
        return frame.join(build, [pair.left for pair in condition.pairs], how)
    left, right = _number_columns(frame, "l"), _number_columns(build, "r")
    on = []
    for key in resolved.spec.keys:
        left_key, right_key = F.col(f"l{key.probe.column}"), F.col(f"r{resolved.published[key.build]}")
        on.append(left_key.eqNullSafe(right_key) if key.null_safe else left_key == right_key)
    for pair in resolved.spec.ranges:
        compare = _COMPARE[pair.op]
        on.append(compare(F.col(f"l{pair.probe.column}"), F.col(f"r{resolved.published[pair.build]}")))
    return left.join(right, on, how).toDF(*(output.field.name for output in resolved.outputs))


def plans_as_of(resolved: ResolvedJoin, conf: Callable[[str, str], str | None]) -> bool:
    """Return whether the extension plans an as-of join with the semantics of `asof_join`.

    Spark's semantics differ for infinite floats, and without ANSI mode for integers, whose differences may wrap around.
    Spark counts a tolerance of a day or more on timestamps in calendar days of the session's time zone, which differ in
    length; in `asof_join` such a tolerance is a duration, as in pandas.
    """
    spec = resolved.spec.as_of
    if spec is None or spec.type in ("float32", "float64"):
        return False
    if spec.type.startswith("int") and conf("spark.sql.ansi.enabled", "true") != "true":
        return False
    exceeds_day = spec.tolerance is not None and spec.tolerance >= _MICROSECONDS_PER_DAY - 1
    return (
        spec.type != "timestamp"
        or not exceeds_day
        or conf("spark.sql.session.timeZone", "") in ("UTC", "Etc/UTC", "GMT")
    )


def join_as_of(
    frame: DataFrame, other: DriverBuildSide, resolved: ResolvedJoin, overrides: Mapping[str, object]
) -> DataFrame:
    """Join with the nearest row, on the columns that `resolved` has found by name."""
    from pyspark.sql import functions as F

    as_of = resolved.spec.as_of
    assert as_of is not None, "it is an as-of join"
    left, right = _number_columns(frame, "l"), _number_columns(_add_hint(other.frame(), overrides), "r")
    on = [F.col(f"l{key.probe.column}") == F.col(f"r{key.build}") for key in resolved.spec.keys]
    joined = left._joinAsOf(
        right,
        leftAsOfColumn=F.col(f"l{as_of.probe.column}"),
        rightAsOfColumn=F.col(f"r{as_of.build}"),
        on=on or None,
        how=resolved.spec.how,
        tolerance=_create_tolerance_literal(as_of),
        allowExactMatches=as_of.exact,
        direction=as_of.direction,
    )
    columns = [f"{'lr'[output.ref.source]}{output.ref.column}" for output in resolved.outputs]
    return joined.select(*columns).toDF(*(output.field.name for output in resolved.outputs))


def _create_tolerance_literal(as_of: AsOf) -> Any:
    """Return the tolerance as a Spark literal, None if it is so large that it excludes nothing."""
    from pyspark.sql import functions as F

    if as_of.tolerance is None:
        return None
    # Without exact matches, Spark also excludes rows at exactly the tolerance.
    units = int(as_of.tolerance) + (not as_of.exact)
    name, _, scale = as_of.type.rstrip(")").replace("(", ",").partition(",")
    if units > (_MOST_DAYS if name == "date" else _MOST_UNITS):
        return None
    if name == "date":
        return F.expr(f"INTERVAL '{units}' DAY")
    if name == "decimal":
        return F.lit(Decimal(units).scaleb(-int(scale.split(",")[1])))
    return F.lit(datetime.timedelta(microseconds=units) if name.startswith("timestamp") else units)


def _number_columns(frame: DataFrame, letter: str) -> DataFrame:
    """Name columns by position: names may repeat, and the two sides may come from one DataFrame."""
    return frame.toDF(*(f"{letter}{number}" for number in range(len(frame.columns))))


def join_by_columns(
    frame: DataFrame, other: DriverBuildSide, on: Any, how: str, overrides: Mapping[str, object]
) -> DataFrame:
    """Join on conditions of Columns, which Spark resolves."""
    return frame.join(_add_hint(other.frame(), overrides), on, how)


def holds_columns(on: Any) -> bool:
    """Return whether `on` is a Column or a list of Columns."""
    items = on if isinstance(on, (list, tuple)) else [on]
    return bool(items) and all(is_column(item) for item in items)


def _add_hint(build: DataFrame, overrides: Mapping[str, object]) -> DataFrame:
    options = [f"{_OPTIONS[name]}={value}" for name, value in overrides.items() if name in _OPTIONS]
    hinted: DataFrame = build.hint(HINT, *options)
    return hinted
