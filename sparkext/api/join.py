"""`pipelined_join`: the public transform that joins two tables in one pipeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkext.config import ALGORITHM, BUILD_SIDE_MAX_BYTES, PARTITIONED, Settings
from sparkext.errors import BuildSideTooLargeError, InvalidJoinError
from sparkext.joins import planned
from sparkext.joins.arguments import check_arrow_types, check_no_left_side, check_signature, read_or_default, refuse
from sparkext.joins.build_side import DriverBuildSide, convert_build_side, publish
from sparkext.joins.join_condition import read_condition
from sparkext.joins.lineage import Lineage, lineage_of
from sparkext.joins.ownership import shuffle_with_build_rows
from sparkext.joins.resolved_join import ResolvedJoin, check_left_names, resolve_join
from sparkext.partitioned.blocks import check_partitionable, is_partitionable, shuffle_by_partition
from sparkext.plans.pipeline.join_names import join_names, parse_join_kind
from sparkext.plans.pipeline.spec import BUILD_PRESERVING
from sparkext.spark.extension import plans_joins
from sparkext.spark.frames import is_dataframe
from sparkext.spark.session_settings import is_case_sensitive, read_session_options

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    On = str | Sequence[str] | Sequence[tuple[str, ...]] | Column | Sequence[Column] | None

_USAGE = 'left.transform(pipelined_join(right, on="key"))'


@check_signature(_USAGE)
def pipelined_join(
    other: DataFrame | pd.DataFrame | pa.Table,
    on: On = None,
    how: str = "inner",
    *,
    algorithm: str | None = None,
    max_build_bytes: int | str | None = None,
    partitioned: bool | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """Join a DataFrame with `other` inside Spark's Python workers; for `DataFrame.transform`.

        out = facts.transform(pipelined_join(dim, on="key")).transform(pipelined_join(other, on=[("a", "b")]))

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
    check_no_left_side("pipelined_join", "on", on, _USAGE)
    overrides: dict[str, object] = {}
    if algorithm is not None:
        overrides[ALGORITHM.name] = algorithm
    if max_build_bytes is not None:
        overrides[BUILD_SIDE_MAX_BYTES.name] = max_build_bytes
    if partitioned is not None and not isinstance(partitioned, bool):
        raise InvalidJoinError([f"partitioned={partitioned!r}: expected True, False or None"])
    if partitioned is not None:
        overrides[PARTITIONED.name] = "always" if partitioned else "never"
    return partial(_apply, other=other, on=on, how=how, overrides=overrides)


def _apply(frame: DataFrame, other: Any, on: Any, how: Any, overrides: dict[str, object]) -> DataFrame:
    if not is_dataframe(frame):
        raise InvalidJoinError([f"pipelined_join transforms a Spark DataFrame, got {type(frame).__name__}"])
    session = frame.sparkSession
    problems: list[str] = []
    settings, misconfigured = read_or_default(read_session_options(session), overrides)
    kind = parse_join_kind(how) if isinstance(how, str) else None
    if kind is None:
        problems.append(f"how={how!r} is not a join type; expected one of {join_names()}")
    is_planned = plans_joins(session)
    if is_planned and kind is not None and planned.holds_columns(on):
        build = convert_build_side(session, other, problems)
        refuse(problems, misconfigured)
        assert build is not None, "or there is a problem"
        return planned.join_by_columns(frame, build, on, kind, overrides)
    told = len(problems)
    condition = read_condition(on, kind, how, problems)
    understood = len(problems) == told
    if frame.isStreaming:
        _check_stream(kind, overrides, problems)
    check_arrow_types(frame.schema, "left", problems)
    build = convert_build_side(session, other, problems)
    # With the extension Catalyst plans the chain of joins, except full outer joins, joins without `on` and joins of
    # streams.
    is_planned = is_planned and bool(condition.names) and kind != "full" and not frame.isStreaming
    if understood and overrides.get(PARTITIONED.name) == "always" and not (is_planned and condition.pairs):
        check_partitionable(session, condition, problems)
    may_partition = is_partitionable(session, condition) and not frame.isStreaming
    by_partition = not is_planned and settings.partitioned == "always" and may_partition
    case_sensitive = is_case_sensitive(session)
    if build is not None and kind not in ("semi", "anti"):
        check_arrow_types(build.schema, "right", problems)

    def resolved(lineage: Lineage) -> ResolvedJoin | None:
        if build is None or not understood:
            return None
        return resolve_join(
            lineage.outputs,
            build.schema.fields,
            condition,
            kind or "inner",
            source=len(lineage.spec.joins) + 1,
            algorithm=settings.algorithm,
            case_sensitive=case_sensitive,
            problems=problems,
        )

    anew = Lineage.starting_at(frame)
    lineage = anew if is_planned or by_partition or kind in BUILD_PRESERVING else lineage_of(frame)
    join = resolved(lineage)
    if build is None:
        check_left_names(lineage.outputs, condition, case_sensitive, problems)
    refuse(problems, misconfigured)
    assert join is not None and build is not None, "or there is a problem"
    if is_planned:
        return planned.join_by_names(frame, build, condition, join, overrides)
    if not by_partition:
        try:
            return _join_replicated(frame, build, lineage, join, settings)
        except BuildSideTooLargeError:
            if settings.partitioned == "never" or not may_partition:
                raise
        join = resolved(anew)
        assert join is not None, "it was resolved before"
    return anew.by_partition(*shuffle_by_partition(frame, build.frame(), join, settings)).then(join, None, settings)


def _check_stream(kind: str | None, overrides: dict[str, object], problems: list[str]) -> None:
    """Add a problem for each argument that would require all rows of the left side, which is a stream."""
    if kind in BUILD_PRESERVING:
        problems.append(
            f"the left side is a stream: a {kind} join could emit the unmatched rows of other only after its last row."
            " Use an inner, left, semi or anti join"
        )
    if overrides.get(PARTITIONED.name) == "always":
        problems.append(
            "partitioned=True is not supported for streams: leave it out, and other is replicated on each node"
        )


def _join_replicated(
    frame: DataFrame, build: DriverBuildSide, lineage: Lineage, join: ResolvedJoin, settings: Settings
) -> DataFrame:
    """Join with the build side replicated on each node."""
    session = frame.sparkSession
    if not join.spec.preserves_build:
        return lineage.then(join, build.source(session, join.published, settings), settings)
    table = build.table(session, join.published, settings)
    source = publish(session, table, settings)
    return lineage.reading(*shuffle_with_build_rows(frame, join, source, table, settings)).then(join, source, settings)
