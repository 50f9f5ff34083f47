"""A spec as a pipeline, bound to its build sides: joins, a filter behind them, and the sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

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


def join_pipeline(
    spec: PipelineSpec,
    builds: Sequence[BuildSide],
    output_schema: pa.Schema,
    settings: Settings,
    resources: Resources,
    task: TaskId = NO_TASK,
) -> Pipeline:
    """Return the pipeline of a task that joins rows and emits them, or groups of them.

    `output_schema` is what the result is declared to be: every batch is held against it.
    """
    if len(builds) != len(spec.joins):
        raise ValueError(f"{len(spec.joins)} joins need as many build sides, got {len(builds)}")
    joins = [
        BuildPreservingJoin(spec, build) if join.preserves_build else Join(join, build, source)
        for source, (join, build) in enumerate(zip(spec.joins, builds, strict=True), 1)
    ]
    operators: list[Operator] = [*joins]
    behind = []
    if spec.filter is not None:
        operators.append(Filter(spec.filter, len(joins) + 1))
        behind.append("filter")
    sink: Sink
    if not spec.aggregations:
        behind.append("gather payload")
        sink = GatheredRows(spec.outputs, output_schema, [join.columns for join in joins])
    else:
        behind.append("group")
        sink = Groups(spec.aggregations, output_schema, settings.debug_hash_mask)
        if sink.in_order:
            resources = replace(resources, cores=1)
    indexes = [{**vars(build.info), "reused": build.reused} for build in builds]
    return Pipeline(operators, sink, settings, resources, TaskMetrics(task, indexes=indexes, behind=behind))
