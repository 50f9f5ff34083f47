"""`asof_join`: the transform that joins each row with the nearest one of another table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkext.config import BUILD_SIDE_MAX_BYTES
from sparkext.errors import InvalidJoinError
from sparkext.spark.extension import plans_joins
from sparkext.spark.frames import is_dataframe
from sparkext.spark.session_settings import is_case_sensitive, session_options
from sparkext.transforms import planned
from sparkext.transforms.arguments import called_as, check_no_left_side, check_travel, read_or_default, refuse
from sparkext.transforms.build_side import build_side
from sparkext.transforms.lineage import Lineage, lineage_of
from sparkext.transforms.resolved_as_of import AsOfArguments, resolve_as_of
from sparkext.transforms.resolved_join import ResolvedJoin

if TYPE_CHECKING:
    import datetime
    from decimal import Decimal

    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import DataFrame

    Tolerance = int | float | Decimal | datetime.timedelta | None

_USAGE = 'left.transform(asof_join(right, on="time"))'


@called_as(_USAGE)
def asof_join(
    other: DataFrame | pd.DataFrame | pa.Table,
    on: str | tuple[str, str],
    *,
    by: str | Sequence[str | tuple[str, str]] | None = None,
    direction: str = "backward",
    tolerance: Tolerance = None,
    allow_exact_matches: bool = True,
    how: str = "left",
    max_build_bytes: int | str | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """Join each row with the one row of `other` that is nearest in `on`; for `DataFrame.transform`.

        out = trades.transform(asof_join(quotes, on="time", by="symbol", tolerance=timedelta(seconds=2)))

    Names and meaning are those of pandas' `merge_asof`, but neither side has to be sorted. `other` is the build side:
    it is published once per node, and ordered there by the first worker that needs it. With the session extension the
    join is planned by Catalyst, and workers read Parquet files themselves. Without it, and for what Spark takes for
    near in another way (floats; integers without `spark.sql.ansi.enabled`; tolerances of a day or more on timestamps
    unless the session's zone is UTC), `other` is run when the transform is applied; transforms that follow each other
    directly are one pipeline.

    Among rows of `other` with equal values, backward takes the last and forward the first, in the order in which Spark
    gives its rows; at equal distances nearest goes backward. A null in `on` has no match, and NaN is after all else.

    Parameters
    ----------
    other:
        The build side: a Spark DataFrame, a pandas DataFrame or a pyarrow Table.
    on:
        The column to be near in: one name for both sides (the result has the left one), or a `(left, right)` pair of
        names (both stay). Integers, floats, decimals of up to 18 digits, dates and timestamps.
    by:
        Columns that have to be equal, named likewise. Unlike in pandas a null equals nothing, as in any Spark join.
    direction:
        `backward`: the last row of `other` at or before; `forward`: the first at or after; `nearest`: the nearer one.
    tolerance:
        The largest distance, inclusive: a `timedelta` for timestamps and dates, else a number.
    allow_exact_matches:
        Whether a row at the very value counts.
    how:
        `left` keeps rows without a match, as pandas does; `inner` drops them.
    max_build_bytes:
        Largest Arrow size of the build side; `spark.sparkext.buildSide.maxBytes` if left out.

    Raises
    ------
    InvalidJoinError
        When the transform is applied: lists every problem of the call.
    BuildSideTooLargeError
        When the transform is applied: the build side exceeds its limit. Where Catalyst plans the join, that is Spark's
        exception instead, raised by the action.
    """
    arguments = AsOfArguments(on, by, direction, tolerance, allow_exact_matches, how)
    check_no_left_side("asof_join", "on", on, _USAGE)
    overrides: dict[str, object] = {}
    if max_build_bytes is not None:
        overrides[BUILD_SIDE_MAX_BYTES.name] = max_build_bytes
    return partial(_apply, other=other, arguments=arguments, overrides=overrides)


def _apply(frame: DataFrame, other: Any, arguments: AsOfArguments, overrides: dict[str, object]) -> DataFrame:
    if not is_dataframe(frame):
        raise InvalidJoinError([f"asof_join transforms a Spark DataFrame, got {type(frame).__name__}"])
    session = frame.sparkSession
    problems: list[str] = []
    settings, misconfigured = read_or_default(session_options(session), overrides)
    check_travel(frame.schema, "left", problems)
    build = build_side(session, other, problems)
    if build is not None:
        check_travel(build.schema, "right", problems)

    def resolved_over(lineage: Lineage) -> ResolvedJoin | None:
        if build is None:
            return None
        return resolve_as_of(
            lineage.outputs,
            build.schema.fields,
            arguments,
            source=len(lineage.spec.joins) + 1,
            algorithm=settings.algorithm,
            case_sensitive=is_case_sensitive(session),
            problems=problems,
        )

    resolved = resolved_over(Lineage.starting_at(frame))
    refuse(problems, misconfigured)
    assert resolved is not None and build is not None, "or there is a problem"
    if not frame.isStreaming and plans_joins(session) and planned.plans_as_of(resolved, session.conf.get):
        return planned.join_as_of(frame, build, resolved, overrides)
    lineage = lineage_of(frame)
    resolved = resolved_over(lineage)
    assert resolved is not None, "as of the frame alone"
    return lineage.then(resolved, build.source(session, resolved.published, settings), settings)
