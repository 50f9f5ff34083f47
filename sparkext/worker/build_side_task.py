"""The function that builds the index of a build side before the join that asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparkext.build_sides.sources import BuildSource
from sparkext.errors import BuildSideTooLargeError
from sparkext.memory.probes import Tasks
from sparkext.plans.spec import PipelineSpec
from sparkext.worker.asked_sides import asked_sides
from sparkext.worker.worker_task import ConfiguredTask


@dataclass(frozen=True)
class BuildSideTask(ConfiguredTask):
    """Has a build side read and indexed before the join that asks for it begins, and says what keeps it from that.

    For each batch that it is given it emits one of one text: empty, or why the build side of join number `number`
    does not fit, or the `SOURCE`. `sources`: those of all joins, None for what is not known beforehand; `made`: the
    rows of the probe side where workers make them.
    """

    spec_json: str
    number: int
    sources: tuple[BuildSource | None, ...]
    made: BuildSource | None = None

    def run(self, batches: Iterator[pa.RecordBatch], tasks: Tasks) -> Iterator[pa.RecordBatch]:
        """Build the index, on this node."""
        for _ in batches:
            yield pa.RecordBatch.from_arrays([pa.array([self._problem()], pa.string())], names=["c0"])

    def _problem(self) -> str:
        spec = PipelineSpec.from_json(self.spec_json)
        try:
            asked_sides(spec, self.sources, self.made, self.settings)[self.number].open()
        except BuildSideTooLargeError as error:
            return str(error)
        return ""
