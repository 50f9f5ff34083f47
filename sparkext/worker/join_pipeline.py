"""A spec as a pipeline, bound to its build sides: joins, a filter behind them, and the sink."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparkext.build_sides.index_store import BuildSide
from sparkext.config import Settings
from sparkext.plans.spec import PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskId, TaskMetrics
from sparkext.worker.nodes import Operator, Sink
from sparkext.worker.operators.build_preserving_join import BuildPreservingJoin
from sparkext.worker.operators.filter import Filter
from sparkext.worker.operators.join import Join
from sparkext.worker.pipeline import Pipeline, Resources
from sparkext.worker.sinks.gathered_rows import GatheredRows
from sparkext.worker.sinks.groups import Groups
from sparkext.worker.sinks.top_rows import TopRows


def join_pipeline(
    spec: PipelineSpec,
    builds: Sequence[BuildSide],
    output_schema: pa.Schema,
    settings: Settings,
    resources: Resources,
    task: TaskId = NO_TASK,
) -> Pipeline:
    """Return the pipeline of a task that joins rows and emits them, the first of them, or groups of them.

    `output_schema` is what the result is declared to be: every batch is held against it.
    """
    behind = ["filter"] if spec.filter is not None else []
    if spec.aggregation is not None:
        behind.append("group")
    else:
        behind.append("gather payload" if spec.top is None else "top")
    indexes = [{**vars(build.info), "reused": build.reused} for build in builds]
    return Pipeline(
        operators_of(spec, builds),
        sink_of(spec, builds, output_schema, settings),
        settings,
        resources,
        TaskMetrics(task, indexes=indexes, behind=behind),
    )


def operators_of(spec: PipelineSpec, builds: Sequence[BuildSide]) -> list[Operator]:
    """Return the joins of a spec over these build sides, and the filter behind them."""
    if len(builds) != len(spec.joins):
        raise ValueError(f"{len(spec.joins)} joins need as many build sides, got {len(builds)}")
    operators: list[Operator] = [
        BuildPreservingJoin(spec, build) if join.preserves_build else Join(join, build, source)
        for source, (join, build) in enumerate(zip(spec.joins, builds, strict=True), 1)
    ]
    if spec.filter is not None:
        operators.append(Filter(spec.filter, len(spec.joins) + 1))
    return operators


def sink_of(spec: PipelineSpec, builds: Sequence[BuildSide], output_schema: pa.Schema, settings: Settings) -> Sink:
    """Return what the rows of a spec end in."""
    if spec.aggregation is not None:
        return Groups(spec.aggregation, output_schema, settings.debug_hash_mask)
    columns = [{} if join.how == "existence" else build.columns for join, build in zip(spec.joins, builds, strict=True)]
    rows = GatheredRows(spec.outputs, output_schema, columns)
    return rows if spec.top is None else TopRows(spec.top, rows)
