"""The worker function of a join pipeline: opens its source, runs the pipeline and reports metrics."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext.engine.join_pipeline import TaskSink, create_pipeline
from sparkext.engine.measured_order import order_joins
from sparkext.engine.pipeline import Resources
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.task_sources import TaskSource
from sparkext.engine.worker_task import ConfiguredTask, task_id
from sparkext.memory.probes import Tasks
from sparkext.reports.metrics import TaskMetrics
from sparkext.reports.reporters import TaskReporter


@dataclass(frozen=True)
class PipelineTask(ConfiguredTask):
    """A pipeline of joins over one partition of the probe side."""

    source: TaskSource
    plan: PipelinePlan
    sink: TaskSink
    reporter: TaskReporter

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Join one partition."""
        spec, schema, settings = self.plan.spec, self.plan.output_schema, self.settings
        with self.source.open(batches, self.plan, settings) as (builds, opened):
            resources = Resources.of_this_task(tasks)
            metrics = TaskMetrics(task_id())
            try:
                source, order = order_joins(spec, builds, opened, settings, metrics)
                pipeline = create_pipeline(spec, builds, schema, settings, resources, metrics, self.sink, order)
                yield from pipeline.run(source)
            finally:
                metrics.peak_rss_bytes = read_peak_rss()
                self.reporter.report(metrics)


def read_peak_rss() -> int:
    """Return the peak resident memory of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
