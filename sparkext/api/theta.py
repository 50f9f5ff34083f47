"""`theta_join`: the public transform that joins by a predicate written in Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkext.config import BUILD_SIDE_MAX_BYTES
from sparkext.joins.calls import transform_function
from sparkext.joins.resolved_theta import resolve_theta
from sparkext.joins.table_join import TableJoin

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame


@transform_function("right, predicate")
def theta_join(
    left: DataFrame,
    other: DataFrame | pd.DataFrame | pa.Table,
    /,
    predicate: Callable[[Any, Any], bool],
    *,
    how: str = "inner",
    max_build_bytes: int | str | None = None,
) -> DataFrame:
    """Join each row with the rows of `other` for which a Python predicate is true.

        def near(point, circle):
            return (point.x - circle.cx) ** 2 + (point.y - circle.cy) ** 2 < circle.radius ** 2

        out = points.transform(theta_join(circles, near))
        out = theta_join(points, circles, near)

    Without the left side as the first argument, the call returns a function for `DataFrame.transform`.

    Every pair of rows is evaluated: numba compiles the function together with the loops around it, so that a pair costs
    a fraction of a nanosecond. If equalities or comparisons of columns narrow a join down, `pipelined_join` is faster
    still. Consecutive transforms form one pipeline, with and without the session extension.

    Parameters
    ----------
    other:
        The build side: a Spark DataFrame, a pandas DataFrame or a pyarrow Table. Applying the transform runs or
        converts it, and publishes its rows once per node.
    predicate:
        A function of two records, a left and a right row, that returns a bool. Columns are attributes of the records.
        numba compiles the function: it may use numbers, `math`, `numpy` functions of numbers, conditions and loops, and
        call functions compiled by `numba.njit`. Values are Python's int, float and bool: dates are days and timestamps
        microseconds since 1970 (UTC), intervals are microseconds. Columns of other types are not available, nor are
        columns whose names repeat, start with an underscore or are not Python identifiers. As with UDFs, modules that
        the function imports must be importable in the workers. Arithmetic follows Python: integers do not overflow, and
        a division by zero is an error. If the function raises for an evaluated pair, the action fails with a
        `ConditionError`. A row with a null in a column that the function reads matches nothing, and the function is not
        called for it. Numbers and arrays that the function captures may change between calls without a new compilation.
    how:
        `inner`, `left`, `semi` or `anti`, as in `pipelined_join`.
    max_build_bytes:
        Largest Arrow size of the build side, as a number of bytes or a text such as `512m`;
        `spark.sparkext.buildSide.maxBytes` if left out.

    Raises
    ------
    InvalidJoinError
        When the transform is applied: lists every problem of the call. If the function does not compile, the error has
        the line and numba's message. Arguments that do not fit the signature raise it when the function is called.
    ConfigError
        When the transform is applied: `max_build_bytes` is invalid, and the call has no other problem.
    BuildSideTooLargeError
        When the transform is applied: the build side exceeds its limit. If workers read `other` from files
        (`scan_parquet`), the action fails instead.
    EnvironmentProblemError
        When the transform is applied: the workers' Python lacks a package or does not start, or
        `spark.executor.pyspark.memory` is too low.
    """
    overrides = {} if max_build_bytes is None else {BUILD_SIDE_MAX_BYTES.name: max_build_bytes}
    join = TableJoin(left, other, overrides, [])
    join.check(partial(resolve_theta, predicate=predicate, how=how))
    return join.replicate()
