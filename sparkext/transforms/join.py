"""`pipelined_join`: the transform that users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparkext.config import ALGORITHM, BUILD_SIDE_MAX_BYTES, PARTITIONED, Settings
from sparkext.errors import BuildSideTooLargeError, InvalidJoinError
from sparkext.plans.join_names import join_kind, join_names
from sparkext.plans.spec import BUILD_PRESERVING
from sparkext.spark.extension import plans_joins
from sparkext.spark.frames import is_dataframe
from sparkext.spark.session_settings import is_case_sensitive, session_options
from sparkext.transforms import planned
from sparkext.transforms.arguments import called_as, check_no_left_side, check_travel, read_or_default, refuse
from sparkext.transforms.build_side import DriverBuildSide, build_side, publish
from sparkext.transforms.join_condition import read_condition
from sparkext.transforms.lineage import Lineage, lineage_of
from sparkext.transforms.ownership import shuffle_with_build_rows
from sparkext.transforms.partitioned import check_partitionable, is_partitionable, shuffled_by_slot
from sparkext.transforms.resolved_join import ResolvedJoin, check_left_names, resolve_join

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    On = str | Sequence[str] | Sequence[tuple[str, ...]] | Column | Sequence[Column] | None

_USAGE = 'left.transform(pipelined_join(right, on="key"))'


@called_as(_USAGE)
def pipelined_join(
    other: DataFrame | pd.DataFrame | pa.Table,
    on: On = None,
    how: str = "inner",
    *,
    algorithm: str | None = None,
    max_build_bytes: int | str | None = None,
    partitioned: bool | None = None,
) -> Callable[[DataFrame], DataFrame]:
    """Join with `other` inside Spark's Python workers; for `DataFrame.transform`.

        out = facts.transform(pipelined_join(dim, on="key")).transform(pipelined_join(other, on=[("a", "b")]))

    The result has the names, order, types, nullability and rows that `df.join(other, on, how)` has. Transforms that
    follow each other directly become one pipeline: one crossing into Python and one back, whatever their number.

    `other` is the build side. It is run, or converted, when the transform is applied; its rows are published once
    per node, and indexed there by the first worker that needs the index. The probe side stays lazy, and may be a
    stream, each batch of which is joined with the same index: with other rows than those that there were when the query
    began only from its next start on.

    In a session with the extension (see `configure`), unless `spark.sparkext.mode` is off, this is `df.join` with the
    hint: both sides stay lazy, Catalyst prunes columns and pushes filters, and what the extension does not plan is
    Spark's own join. Full outer joins and joins without a key run as they do without the extension.

    Parameters
    ----------
    other:
        The build side: a Spark DataFrame, a pandas DataFrame or a pyarrow Table.
    on:
        A column name or a list of names that both sides have (one key column in the result, as with
        `DataFrame.join`), or a list of `(left, right)` name pairs (both stay). `(left, "<=>", right)` lets null equal
        null; `(left, op, right)` with `<`, `<=`, `>` or `>=` compares, with or without equalities beside it, at most
        two columns of the right side: `on=[("time", ">=", "start"), ("time", "<", "stop")]`. Left out only for
        `how="cross"`. With the extension also a Column or a list of Columns.
    how:
        Any name that `DataFrame.join` takes: inner, cross, left, right, full, semi, anti and their aliases. A right or
        full join costs one more shuffle of the probe side, and ends the pipeline before it: build rows without a match
        may come out only once, so all rows of a key must meet in one task.
    algorithm:
        `auto`, `hash` or `sort_merge`; `spark.sparkext.algorithm` if left out.
    max_build_bytes:
        Largest Arrow size of the build side; `spark.sparkext.buildSide.maxBytes` if left out.
    partitioned:
        Whether both sides are shuffled by key, so that no node holds all of `other`: True, False (`other` is refused
        if it is too large), or None for what `spark.sparkext.partitioned` says: by default, only where `other` is too
        large. The pipeline before it ends then, as with a right or full join.

    Raises
    ------
    InvalidJoinError
        When the transform is applied: lists every problem of the call.
    BuildSideTooLargeError
        When the transform is applied: the build side exceeds its limit, and the join may not be partitioned. Where
        Catalyst plans the join, that is Spark's exception instead, raised by the action.
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
    settings, misconfigured = read_or_default(session_options(session), overrides)
    kind = join_kind(how) if isinstance(how, str) else None
    if kind is None:
        problems.append(f"how={how!r} is not a join type; expected one of {join_names()}")
    is_planned = plans_joins(session)
    if is_planned and kind is not None and planned.holds_columns(on):
        build = build_side(session, other, problems)
        refuse(problems, misconfigured)
        assert build is not None, "or there is a problem"
        return planned.join_by_columns(frame, build, on, kind, overrides)
    told = len(problems)
    condition = read_condition(on, kind, how, problems)
    understood = len(problems) == told
    if frame.isStreaming:
        _check_stream(kind, overrides, problems)
    check_travel(frame.schema, "left", problems)
    build = build_side(session, other, problems)
    # Catalyst finds the chain by itself, and has no full outer join: that one runs as it does without the extension.
    is_planned = is_planned and bool(condition.names) and kind != "full" and not frame.isStreaming
    if understood and overrides.get(PARTITIONED.name) == "always" and not (is_planned and condition.pairs):
        check_partitionable(session, condition, problems)
    may_partition = is_partitionable(session, condition) and not frame.isStreaming
    by_slot = not is_planned and settings.partitioned == "always" and may_partition
    case_sensitive = is_case_sensitive(session)
    if build is not None and kind not in ("semi", "anti"):
        check_travel(build.schema, "right", problems)

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
    lineage = anew if is_planned or by_slot or kind in BUILD_PRESERVING else lineage_of(frame)
    join = resolved(lineage)
    if build is None:
        check_left_names(lineage.outputs, condition, case_sensitive, problems)
    refuse(problems, misconfigured)
    assert join is not None and build is not None, "or there is a problem"
    if is_planned:
        return planned.join_by_names(frame, build, condition, join, overrides)
    if not by_slot:
        try:
            return _whole(frame, build, lineage, join, settings)
        except BuildSideTooLargeError:
            if settings.partitioned == "never" or not may_partition:
                raise
        join = resolved(anew)
        assert join is not None, "it was resolved before"
    return anew.by_slot(*shuffled_by_slot(frame, build.frame(), join, settings)).then(join, None, settings)


def _check_stream(kind: str | None, overrides: dict[str, object], problems: list[str]) -> None:
    """Add to `problems` why a stream cannot be joined this way: what has to be known of all of it."""
    if kind in BUILD_PRESERVING:
        problems.append(
            f"the left side is a stream, and a {kind} join emits rows of other that match none of it: use an inner,"
            " left, semi or anti join"
        )
    if overrides.get(PARTITIONED.name) == "always":
        problems.append("partitioned=True is not for streams: leave it out, and other lies whole on each node")


def _whole(
    frame: DataFrame, build: DriverBuildSide, lineage: Lineage, join: ResolvedJoin, settings: Settings
) -> DataFrame:
    """Join with all of the build side on each node."""
    session = frame.sparkSession
    if not join.spec.preserves_build:
        return lineage.then(join, build.source(session, join.published, settings), settings)
    table = build.table(session, join.published, settings)
    source = publish(session, table, settings)
    return lineage.reading(*shuffle_with_build_rows(frame, join, source, table, settings)).then(join, source, settings)
