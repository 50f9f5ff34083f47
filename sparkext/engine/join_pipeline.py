"""Binds a spec to its build sides: returns a pipeline of joins, a filter and the sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.config import Settings
from sparkext.engine.nodes import Operator, Sink
from sparkext.engine.operators.build_preserving_join import BuildPreservingJoin
from sparkext.engine.operators.filter import Filter
from sparkext.engine.operators.join import Join
from sparkext.engine.operators.reducing_join import ReducingJoin
from sparkext.engine.pipeline import Pipeline, Resources
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.engine.sinks.groups import Groups
from sparkext.engine.sinks.top_rows import TopRows
from sparkext.memory.freed import FreeMemory
from sparkext.plans.adaptive.join_order import find_reducers
from sparkext.plans.pipeline.spec import PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskMetrics


class TaskSink(Protocol):
    """The destination of a task's result."""

    def open(self, rows: Sink, free: FreeMemory) -> Sink:
        """Return the sink of the task; `rows` gathers the result."""
        ...


@dataclass(frozen=True)
class EmittedBatches:
    """The task emits its result."""

    def open(self, rows: Sink, free: FreeMemory) -> Sink:
        """Return `rows`."""
        return rows


def create_pipeline(
    spec: PipelineSpec,
    builds: Sequence[BuildSide],
    output_schema: pa.Schema,
    settings: Settings,
    resources: Resources,
    metrics: TaskMetrics | None = None,
    target: TaskSink = EmittedBatches(),
    order: Sequence[int] = (),
) -> Pipeline:
    """Return a task's pipeline, which joins rows and emits the result rows, only the first result rows, or groups.

    Every output batch is checked against `output_schema`, the declared schema of the result. `target`: the destination
    of the result. `order`: the indexes of the joins in the order in which they run, if it differs from the order of the
    spec.
    """
    metrics = TaskMetrics(NO_TASK) if metrics is None else metrics
    metrics.behind = ["filter"] if spec.filter is not None else []
    if spec.aggregations:
        metrics.behind.append("group")
    else:
        metrics.behind.append("gather payload" if spec.top is None else "top")
    metrics.indexes = [
        {**vars(build.info), "reused": build.reused, "is_partition": build.is_partition} for build in builds
    ]
    operators = create_operators(spec, builds, settings, metrics, order)
    sink = target.open(create_sink(spec, builds, output_schema, settings), resources.headroom)
    if any(aggregation.in_order for aggregation in spec.aggregations):
        resources = replace(resources, cores=1)
    return Pipeline(operators, sink, settings, resources, metrics, order)


def create_operators(
    spec: PipelineSpec, builds: Sequence[BuildSide], settings: Settings, metrics: TaskMetrics, order: Sequence[int] = ()
) -> list[Operator]:
    """Return a spec's joins over these build sides, in this order, followed by the spec's filter."""
    if len(builds) != len(spec.joins):
        raise ValueError(f"{len(spec.joins)} joins need one build side each, got {len(builds)}")
    order = order or range(len(builds))
    positions = {number: position for position, number in enumerate(order)}
    operators: list[Operator] = [
        _create_join(spec, number, builds, positions[number] + 1, settings, metrics) for number in order
    ]
    if spec.filter is not None:
        operators.append(Filter(spec.filter, len(spec.joins) + 1))
    return operators


def create_sink(spec: PipelineSpec, builds: Sequence[BuildSide], output_schema: pa.Schema, settings: Settings) -> Sink:
    """Return the sink of a spec: groups, top rows or all rows."""
    if spec.aggregations:
        return Groups(spec.aggregations, output_schema, settings.debug_hash_mask)
    columns = [{} if join.how == "existence" else build.columns for join, build in zip(spec.joins, builds, strict=True)]
    rows = GatheredRows(spec.outputs, output_schema, columns)
    return rows if spec.top is None else TopRows(spec.top, rows)


def _create_join(
    spec: PipelineSpec,
    number: int,
    builds: Sequence[BuildSide],
    input_sources: int,
    settings: Settings,
    metrics: TaskMetrics,
) -> Join | ReducingJoin:
    join, build = spec.joins[number], builds[number]
    if join.preserves_build:
        return BuildPreservingJoin(spec, build)
    reducers = () if settings.debug_join_order == "query" else find_reducers(spec, number)
    if reducers:
        recipe = derive_index_recipe(spec, number, settings.debug_hash_mask)
        at_once = settings.debug_join_order == "random"
        return ReducingJoin(spec, number, reducers, builds, recipe, input_sources, metrics, at_once)
    return Join(join, build, number + 1, input_sources)
