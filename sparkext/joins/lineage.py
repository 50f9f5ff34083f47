"""Combines consecutive transforms into one pipeline.

A DataFrame that a transform or `scan_parquet` returns remembers the pipeline that computes it: the pipeline's input and
spec. The next transform of that same object extends the spec and runs over the same input, instead of reading the first
transform's output. Any operation in between starts a new pipeline: a filter or a select returns another object, and a
cached DataFrame is read from Spark's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings
from sparkext.engine.join_pipeline import EmittedBatches
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.pipeline_task import PipelineTask
from sparkext.engine.task_sources import NumberedParts, PartitionBlocks, ProbeBatches, TaskSource
from sparkext.joins.columns import OutputField
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.memory import address_space
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, PipelineSpec
from sparkext.reports.reporters import AccumulatorReporter, Reporter, SpoolReporter
from sparkext.scans.scanned_table import ProbeScan
from sparkext.shuffle.received_partition import PartitionSchemas
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import is_cached, map_in_arrow
from sparkext.spark.session_settings import count_tasks_per_executor, is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ATTRIBUTE = "_sparkext_lineage"


@dataclass(frozen=True)
class Lineage:
    """A pipeline under construction: its input, its joins with their build sides, and its output columns.

    With a `scan`, `input` holds only the indexes of the scan's parts, one per partition. With a `partition`, `input`
    holds the blocks of a partitioned join, of the probe side and of the first build side; the source of that build side
    is None.
    """

    input: DataFrame
    spec: PipelineSpec
    outputs: tuple[OutputField, ...]
    sources: tuple[BuildSource | None, ...] = ()
    reporter: Reporter | None = None
    scan: ProbeScan | None = None
    partition: PartitionSchemas | None = None

    @classmethod
    def starting_at(cls, frame: DataFrame) -> Lineage:
        """Begin a pipeline that reads `frame`."""
        outputs = tuple(OutputField(f, ColumnRef(PROBE, i)) for i, f in enumerate(frame.schema.fields))
        # `map_in_arrow` adds a column to an input that has none.
        return cls(frame, PipelineSpec(max(len(outputs), 1), (), tuple(out.ref for out in outputs)), outputs)

    @classmethod
    def scanning(cls, session: SparkSession, scan: ProbeScan, names: Sequence[str]) -> Lineage:
        """Begin a pipeline that reads files itself, and emits the scan's columns under these names."""
        from pyspark.sql.types import StructField

        fields = [scan.table.fields[number] for number in scan.columns]
        outputs = tuple(
            OutputField(StructField(name, field.dataType, True, field.metadata), ColumnRef(PROBE, number))
            for number, (name, field) in enumerate(zip(names, fields, strict=True))
        )
        parts = len(scan.parts)
        frame = session.range(0, parts, 1, max(parts, 1))
        spec = PipelineSpec(len(outputs), (), tuple(out.ref for out in outputs))
        return cls(frame, spec, outputs, reporter=create_reporter(session), scan=scan)

    def reading(self, frame: DataFrame, owner_columns: int) -> Lineage:
        """Return the same pipeline over `frame`, which has `owner_columns` additional columns in front."""
        return replace(self, input=frame, spec=replace(self.spec, owner_columns=owner_columns))

    def by_partition(self, blocks: DataFrame, partition: PartitionSchemas) -> Lineage:
        """Return the same pipeline over the blocks of its input and of the build side of the next join."""
        spec = replace(self.spec, owner_columns=1 if partition.owns_build else 0)
        return replace(self, input=blocks, spec=spec, partition=partition)

    def then(self, resolved: ResolvedJoin, source: BuildSource | None, settings: Settings) -> DataFrame:
        """Append a join and return the DataFrame of the whole pipeline."""
        session = self.input.sparkSession
        spec = self.spec.then(resolved.spec, tuple(output.ref for output in resolved.outputs))
        extended = replace(
            self,
            spec=spec,
            outputs=resolved.outputs,
            sources=(*self.sources, source),
            reporter=create_reporter(session),
        )
        return extended.frame(settings)

    def frame(self, settings: Settings) -> DataFrame:
        """Return the DataFrame of the pipeline, which remembers it."""
        from pyspark.sql.types import StructType

        assert self.reporter is not None
        address_space.check_setting(lambda key: self.input.sparkSession.conf.get(key, None))
        schema = StructType([output.field for output in self.outputs])
        task = PipelineTask(
            self._source(settings),
            PipelinePlan(self.spec, self.sources, arrow_schema(schema)),
            EmittedBatches(),
            self.reporter,
            settings=settings,
            tasks_sharing=count_tasks_per_executor(self.input.sparkSession),
        )
        frame = map_in_arrow(self.input, task, schema)
        setattr(frame, _ATTRIBUTE, self)
        return frame

    def _source(self, settings: Settings) -> TaskSource:
        """Return the contents of `input` as tasks receive them."""
        if self.partition is not None:
            return PartitionBlocks(self.partition)
        if self.scan is not None:
            scan = self.scan.table.scan(self.scan.columns, settings.morsel_max_rows)
            return NumberedParts(scan, self.scan.parts)
        return ProbeBatches()


def create_reporter(session: SparkSession) -> Reporter:
    """Return the reporter of task metrics for this type of session."""
    return SpoolReporter() if is_connect(session) else AccumulatorReporter(session)


def lineage_of(frame: DataFrame) -> Lineage:
    """Return the pipeline to extend: the pipeline that computes `frame`, or a new pipeline that reads it."""
    lineage = find_lineage(frame)
    if lineage is None or is_cached(frame):
        return Lineage.starting_at(frame)
    return lineage


def find_lineage(frame: object) -> Lineage | None:
    """Return the pipeline that computes `frame`, or None if no transform returned this same object."""
    lineage = getattr(frame, "__dict__", {}).get(_ATTRIBUTE)
    return lineage if isinstance(lineage, Lineage) else None
