"""`pipelined_join`: the public transform that joins two tables in one pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from sparkext.config import ALGORITHM, BUILD_SIDE_MAX_BYTES, PARTITIONED
from sparkext.errors import BuildSideTooLargeError
from sparkext.joins import planned
from sparkext.joins.arguments import check_flag, read_kind
from sparkext.joins.calls import transform_function
from sparkext.joins.join_condition import read_condition
from sparkext.joins.resolved_join import resolve_join
from sparkext.joins.table_join import TableJoin
from sparkext.partitioned.blocks import find_obstacles, join_by_partition
from sparkext.plans.pipeline.spec import BUILD_PRESERVING
from sparkext.spark.extension import plans_joins

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    On = str | Sequence[str] | Sequence[tuple[str, ...]] | Column | Sequence[Column] | None

_KINDS = ("inner", "left", "right", "full", "semi", "anti")


@transform_function('right, on="key"')
def pipelined_join(
    left: DataFrame,
    other: DataFrame | pd.DataFrame | pa.Table,
    /,
    on: On = None,
    how: str = "inner",
    *,
    algorithm: str | None = None,
    max_build_bytes: int | str | None = None,
    partitioned: bool | None = None,
) -> DataFrame:
    """Join a DataFrame with `other` inside Spark's Python workers.

        out = facts.transform(pipelined_join(dim, on="key")).transform(pipelined_join(other, on=[("a", "b")]))
        out = pipelined_join(pipelined_join(facts, dim, on="key"), other, on=[("a", "b")])

    Without the left side as the first argument, the call returns a function for `DataFrame.transform`.

    The result has the column names, column order, types, nullability and rows of `df.join(other, on, how)`.
    Consecutive transforms form one pipeline: rows are sent to Python once and back once, however many joins there are.

    `other` is the build side. Applying the transform runs or converts it, and publishes its rows once per node. The
    first worker of a node that needs the index builds it. The probe side stays lazy and may be a stream: all its
    batches are joined with the same index, so a running query does not see later changes of `other`; restart the query
    to read them.

    In a session with the extension (see `configure`), unless `spark.sparkext.mode` is off, the call is `df.join` with a
    hint: both sides stay lazy, Catalyst prunes columns and pushes filters down, and a join that the extension does not
    plan runs as Spark's own join. Full outer joins, joins without `on` and joins of a stream run as they do without the
    extension, unless `on` holds Columns.

    Parameters
    ----------
    other:
        The build side: a Spark DataFrame, a pandas DataFrame or a pyarrow Table.
    on:
        A column name or a list of names that both sides have (the result has one column per key, as with
        `DataFrame.join`), or a list of tuples of names (the result has both columns). `(left, right)` is an equality,
        `(left, "<=>", right)` an equality in which null equals null, and `(left, op, right)` with `<`, `<=`, `>` or
        `>=` a comparison. In all other conditions null matches nothing. Equalities and comparisons can be combined; all
        comparisons of a call may use at most two columns of the right side:
        `on=[("time", ">=", "start"), ("time", "<", "stop")]`. Required unless `how="cross"`. With the extension, also
        a Column or a list of Columns.
    how:
        Any join type that `DataFrame.join` accepts: inner, cross, left, right, full, semi, anti and their aliases. A
        right or full join shuffles the probe side once more and ends the preceding pipeline: each unmatched build row
        must be emitted exactly once, so one task must receive all rows of a key.
    algorithm:
        `auto`, `hash` or `sort_merge`; `spark.sparkext.algorithm` if left out.
    max_build_bytes:
        Largest Arrow size of the build side, as a number of bytes or a text such as `512m`;
        `spark.sparkext.buildSide.maxBytes` if left out.
    partitioned:
        Whether both sides are shuffled by key, so that no node holds all of `other`: True, False (`other` is refused if
        it is too large), or None for the value of `spark.sparkext.partitioned`, which by default partitions a join only
        if `other` is too large. True requires an equality in `on` and Spark 4.1, and is refused for streams and with
        `spark.io.encryption.enabled`. A partitioned join ends the preceding pipeline, as a right or full join does.

    Raises
    ------
    InvalidJoinError
        When the transform is applied: lists every problem of the call. Arguments that do not fit the signature raise it
        when the function is called.
    ConfigError
        When the transform is applied: `algorithm` or `max_build_bytes` is invalid, and the call has no other problem.
    BuildSideTooLargeError
        When the transform is applied: the build side exceeds its limit, and the join may not be partitioned. If workers
        read `other` from files (`scan_parquet`), the action fails instead. If Catalyst plans the join, it is
        partitioned, or Spark's own join runs instead.
    EnvironmentProblemError
        When the transform is applied, unless Catalyst plans the join: the workers' Python lacks a package or does not
        start, or `spark.executor.pyspark.memory` is too low.
    """
    problems: list[str] = []
    kind = read_kind(how, _KINDS, "pipelined_join", problems)
    if partitioned is not None:
        check_flag("partitioned", partitioned, problems)
    options = {
        ALGORITHM.name: algorithm,
        BUILD_SIDE_MAX_BYTES.name: max_build_bytes,
        PARTITIONED.name: None if partitioned is None else "always" if partitioned else "never",
    }
    overrides = {name: value for name, value in options.items() if value is not None}
    join = TableJoin(left, other, overrides, problems)
    plans = plans_joins(join.session)
    if plans and kind is not None and planned.holds_columns(on):
        join.refuse()
        return planned.join_by_columns(left, join.build, on, kind, overrides)
    condition = read_condition(on, kind, how, problems)
    names = [] if condition is None else [left_name for left_name, _ in condition.names]
    pairs = () if condition is None else condition.pairs
    # With the extension Catalyst plans the chain of joins, except full outer joins, joins without `on` and joins of
    # streams.
    plans = plans and bool(names) and kind != "full" and not left.isStreaming
    obstacles = find_obstacles(join.session, pairs)
    if left.isStreaming:
        _check_stream(kind, bool(partitioned), problems)
    if partitioned and condition is not None and not (plans and pairs):
        problems += obstacles
    resolve = None if condition is None else partial(resolve_join, condition=condition, kind=kind or "inner")
    join.check(resolve, names, sends_right=kind not in ("semi", "anti"))
    assert condition is not None, "or there is a problem"
    if plans:
        return planned.join_by_names(left, join.build, condition, join.resolved(), overrides)
    may_partition = not obstacles and not left.isStreaming
    if may_partition and join.settings.partitioned == "always":
        return join_by_partition(join)
    try:
        return join.replicate()
    except BuildSideTooLargeError:
        if not may_partition or join.settings.partitioned == "never":
            raise
        return join_by_partition(join)


def _check_stream(kind: str | None, must_partition: bool, problems: list[str]) -> None:
    """Add a problem for each argument that would require all rows of the left side, which is a stream."""
    if kind in BUILD_PRESERVING:
        problems.append(
            f"the left side is a stream: a {kind} join could emit the unmatched rows of other only after its last row."
            " Use an inner, left, semi or anti join"
        )
    if must_partition:
        problems.append(
            "partitioned=True is not supported for streams: leave it out, and other is replicated on each node"
        )
