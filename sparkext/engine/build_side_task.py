"""The worker function that builds the index of a build side ahead of its join."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext.build_sides.sources import BuildSource
from sparkext.engine.derived_rows import open_source
from sparkext.engine.pipeline_plan import plan_requested_sides
from sparkext.engine.worker_task import ConfiguredTask
from sparkext.errors import BuildSideTooLargeError
from sparkext.memory.probes import Tasks
from sparkext.plans.pipeline.spec import PipelineSpec


@dataclass(frozen=True)
class BuildSideTask(ConfiguredTask):
    """Builds an index before its join starts, and reports if the build side does not fit.

    For each input batch, emits a batch with one text: empty after success, else the reason why the build side does not
    fit. It is the build side of join `number`, or the derived probe side if `number` is `SOURCE`. `sources`: the
    sources of all joins, None if unknown in advance. `made`: the source of the derived probe side, if there is one.
    """

    spec: PipelineSpec
    number: int
    sources: tuple[BuildSource | None, ...]
    made: BuildSource | None = None

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Build the index on this node."""
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([self._try_build()], pa.string())], names=["c0"])

    def _try_build(self) -> str:
        try:
            sides = plan_requested_sides(self.spec, self.sources, self.made, self.settings)
            open_source(sides[self.number], self.number)
        except BuildSideTooLargeError as error:
            return str(error)
        return ""
