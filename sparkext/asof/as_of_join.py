"""`asof_join`: the public transform that joins each row with the nearest row of another table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparkext.asof.resolved_as_of import AsOfArguments, resolve_as_of
from sparkext.config import BUILD_SIDE_MAX_BYTES
from sparkext.joins import planned
from sparkext.joins.calls import transform_function
from sparkext.joins.table_join import TableJoin
from sparkext.spark.extension import plans_joins

if TYPE_CHECKING:
    from decimal import Decimal

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from sparkext.joins.durations import Duration

    Tolerance = int | float | Decimal | Duration | None


@transform_function('right, on="time"')
def asof_join(
    left: DataFrame,
    other: DataFrame | pd.DataFrame | pa.Table,
    /,
    on: str | tuple[str, str],
    *,
    by: str | Sequence[str | tuple[str, str]] | None = None,
    direction: str = "backward",
    tolerance: Tolerance = None,
    allow_exact_matches: bool = True,
    how: str = "left",
    max_build_bytes: int | str | None = None,
) -> DataFrame:
    """Join each row with the single row of `other` whose `on` value is nearest.

        out = trades.transform(asof_join(quotes, on="time", by="symbol", tolerance="2 seconds"))
        out = asof_join(trades, quotes, on="time", by="symbol", tolerance="2 seconds")

    Without the left side as the first argument, the call returns a function for `DataFrame.transform`.

    Arguments have the names and the meaning of pandas' `merge_asof`, but neither side has to be sorted. `other` is the
    build side: it is published once per node, and the first worker of a node that needs it sorts it. With the session
    extension, Catalyst plans the join, and workers read Parquet files themselves. Without the extension, applying the
    transform runs `other`, and consecutive transforms form one pipeline. Two kinds of joins run that way even with the
    extension: joins of streams, and joins whose distances Spark computes differently. The latter are joins on floats,
    on integers without `spark.sql.ansi.enabled`, and on timestamps with a tolerance of a day or more, unless the
    session's time zone is UTC.

    Among rows of `other` with equal values, `backward` takes the last and `forward` the first, in the order in which
    Spark returns the rows. At equal distances, `nearest` takes the row with the smaller value. A row with a null in
    `on` has no match. NaN is greater than all other values.

    Parameters
    ----------
    other:
        The build side: a Spark DataFrame, a pandas DataFrame or a pyarrow Table.
    on:
        The column whose values are compared: one name for both sides (the result has the left column), or a
        `(left, right)` pair of names (the result has both). Types: integers, floats, decimals of up to 18 digits,
        dates and timestamps.
    by:
        Columns that must be equal: a name or a pair as in `on`, or a list of these; none if left out. Unlike in pandas,
        null equals nothing, as in any Spark join.
    direction:
        `backward`: the last row of `other` at or before the value; `forward`: the first row at or after it;
        `nearest`: the nearer one of the two.
    tolerance:
        The largest distance, inclusive; unlimited if left out. For timestamps a text such as `10 minutes` or a
        `timedelta`; for dates one of these, rounded down to days, or an int of days; for integers an int, for decimals
        an int or a Decimal, for floats any number.
    allow_exact_matches:
        Whether a row with an equal value matches.
    how:
        `left` keeps rows without a match, as pandas does; `inner` drops them.
    max_build_bytes:
        Largest Arrow size of the build side, as a number of bytes or a text such as `512m`;
        `spark.sparkext.buildSide.maxBytes` if left out.

    Raises
    ------
    InvalidJoinError
        When the transform is applied: lists every problem of the call. Arguments that do not fit the signature raise it
        when the function is called.
    ConfigError
        When the transform is applied: `max_build_bytes` is invalid, and the call has no other problem.
    BuildSideTooLargeError
        When the transform is applied: the build side exceeds its limit. If workers read `other` from files
        (`scan_parquet`), the action fails instead. If Catalyst plans the join, Spark's own join runs instead.
    EnvironmentProblemError
        When the transform is applied, unless Catalyst plans the join: the workers' Python lacks a package or does not
        start, or `spark.executor.pyspark.memory` is too low.
    """
    overrides = {} if max_build_bytes is None else {BUILD_SIDE_MAX_BYTES.name: max_build_bytes}
    arguments = AsOfArguments(on, by, direction, tolerance, allow_exact_matches, how)
    join = TableJoin(left, other, overrides, [])
    join.check(partial(resolve_as_of, arguments=arguments))
    if plans_joins(join.session) and not left.isStreaming:
        resolved = join.resolved()
        if planned.plans_as_of(resolved, join.session.conf.get):
            return planned.join_as_of(left, join.build, resolved, overrides)
    return join.replicate()
