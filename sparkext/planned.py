"""`pipelined_join` in a session with the extension: `DataFrame.join` with the hint, lazy, and planned by Catalyst.

What the extension does not plan falls back to Spark's own join there, with the reason in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any

from sparkext.build_side import DriverBuildSide
from sparkext.config import ALGORITHM, BUILD_SIDE_MAX_BYTES
from sparkext.join_shape import JoinCondition, JoinShape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HINT = "pipelined_join"
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_OPTIONS = {ALGORITHM.name: "algorithm", BUILD_SIDE_MAX_BYTES.name: "maxBytes"}


def join_by_names(
    frame: DataFrame,
    other: DriverBuildSide,
    condition: JoinCondition,
    shape: JoinShape,
    overrides: Mapping[str, object],
) -> DataFrame:
    """Join on columns by name, as `shape` has resolved them."""
    from pyspark.sql import functions as F

    build = _hinted(other.frame(), overrides)
    how = shape.spec.how
    if condition.using:
        return frame.join(build, [pair.left for pair in condition.pairs], how)
    # Columns are renamed by position and back: names may repeat, and the two sides may come from one DataFrame.
    left = frame.toDF(*(f"l{number}" for number in range(len(frame.columns))))
    right = build.toDF(*(f"r{number}" for number in range(len(build.columns))))
    on = []
    for key in shape.spec.keys:
        one, two = F.col(f"l{key.probe.column}"), F.col(f"r{shape.published[key.build]}")
        on.append(one.eqNullSafe(two) if key.null_safe else one == two)
    for pair in shape.spec.ranges:
        compared = _COMPARE[pair.op]
        on.append(compared(F.col(f"l{pair.probe.column}"), F.col(f"r{shape.published[pair.build]}")))
    return left.join(right, on, how).toDF(*(output.field.name for output in shape.outputs))


def join_by_columns(
    frame: DataFrame, other: DriverBuildSide, on: Any, how: str, overrides: Mapping[str, object]
) -> DataFrame:
    """Join on Column conditions, which Spark resolves."""
    return frame.join(_hinted(other.frame(), overrides), on, how)


def holds_columns(on: Any) -> bool:
    """Tell whether `on` is a Column or a list of Columns."""
    items = on if isinstance(on, (list, tuple)) else [on]
    return bool(items) and all(type(item).__name__ == "Column" for item in items)


def _hinted(build: DataFrame, overrides: Mapping[str, object]) -> DataFrame:
    hinted: DataFrame = build.hint(HINT, *(f"{_OPTIONS[name]}={value}" for name, value in overrides.items()))
    return hinted
