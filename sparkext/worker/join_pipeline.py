"""A chain of joins as a pipeline: what a spec says, bound to its build sides."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparkext.build_sides.index_store import BuildSide
from sparkext.config import Settings
from sparkext.plans.spec import PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskId, TaskMetrics
from sparkext.worker.operators.build_preserving_join import BuildPreservingJoin
from sparkext.worker.operators.join import Join
from sparkext.worker.pipeline import Pipeline, Resources
from sparkext.worker.sinks.gathered_rows import GatheredRows


def join_pipeline(
    spec: PipelineSpec,
    builds: Sequence[BuildSide],
    output_schema: pa.Schema,
    settings: Settings,
    resources: Resources,
    task: TaskId = NO_TASK,
) -> Pipeline:
    """Return the pipeline of a task that joins rows and emits them.

    `output_schema` is what the result is declared to be: every batch is held against it.
    """
    if len(builds) != len(spec.joins):
        raise ValueError(f"{len(spec.joins)} joins need as many build sides, got {len(builds)}")
    joins = [
        BuildPreservingJoin(spec, build) if join.preserves_build else Join(join, build, source)
        for source, (join, build) in enumerate(zip(spec.joins, builds, strict=True), 1)
    ]
    sink = GatheredRows(spec.outputs, output_schema, [join.columns for join in joins])
    indexes = [{**vars(build.info), "reused": build.reused} for build in builds]
    return Pipeline(joins, sink, settings, resources, TaskMetrics(task, indexes=indexes))
