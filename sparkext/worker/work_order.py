"""Builds worker functions from the work orders of the JVM extension.

A work order is JSON, written by `jvm/common/protocol/WorkOrder.scala`. The pickle that Spark sends to a worker contains
only a call of `make`, `build` or `plan` with this JSON, so the JVM can write it without Python.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sparkext.build_sides.published_files import StreamedBroadcast
from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings, read_settings
from sparkext.engine.build_side_task import BuildSideTask
from sparkext.engine.derived_rows import DerivedRows
from sparkext.engine.join_pipeline import EmittedBatches
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.pipeline_task import PipelineTask
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.engine.sinks.outgoing_rows import OutgoingFile
from sparkext.engine.sinks.routed_blocks import OutgoingStream
from sparkext.engine.task_sources import DerivedProbe, ListedSplits, PartitionFiles, ProbeBatches, TaskSource
from sparkext.engine.worker_task import check_version
from sparkext.parquet.file_stores import Bucket
from sparkext.parquet.rules import Calendars
from sparkext.parquet.scan import ParquetScan
from sparkext.partitioned.balance_task import BalanceTask
from sparkext.partitioned.streamed_partition_task import StreamedPartitionTask
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.projection import parse_projection
from sparkext.plans.pipeline.scan import ScanSpec, Split
from sparkext.plans.pipeline.spec import PipelineSpec
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.reports.reporters import FileReporter
from sparkext.rows.types import arrow_key_type
from sparkext.shuffle.partitioning import Partitioning
from sparkext.shuffle.received_partition import PartitionSchemas
from sparkext.shuffle.streamed import StreamedExchange
from sparkext.spark.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def make(order_json: str) -> tuple[PipelineTask | StreamedPartitionTask, StructType]:
    """Return the function for `mapInArrow` and its return type.

    The order's fields:

    - `package`: the version of sparkext that the jar belongs to
    - `spec`: see `plans.pipeline.spec`
    - `settings`: configuration strings
    - `output`: a Spark schema
    - `scan`: how to read the probe side; missing if Spark sends its rows
    - `made`: the derived probe side, in the form of an entry of `builds`; missing if it is not derived by workers
    - `builds`: for each join, the broadcast's id, the CRC-32 of its file and a Spark schema, or the files to read; null
      if an exchange delivers the build rows
    - `run`: the name of the run in the report
    - `tasks_sharing`: a number, or missing
    - `received`: the schemas of both sides; missing unless an exchange delivers the rows
    - `outgoing`: the schema and keys of the outgoing rows; missing unless the result goes into an exchange

    Within `received` and `outgoing`, `streamed` is missing unless rows are streamed. It has the numbers of buckets and
    partitions, and a name for the run.

    Raises
    ------
    EnvironmentProblemError
        This worker has another version of sparkext.
    """
    order = _read(order_json)
    settings, output = read_settings(order["settings"].get, {}), _parse_schema(order["output"])
    outgoing, incoming = order.get("outgoing"), order.get("received")
    schema = arrow_schema(output if outgoing is None else _parse_schema(outgoing["schema"]))
    plan = PipelinePlan(PipelineSpec.from_data(order["spec"]), _parse_sources(order, settings), schema)
    reporter, sharing = FileReporter(order["run"]), order.get("tasks_sharing")
    if incoming is not None and "streamed" in incoming:
        streamed, received = StreamedExchange(**incoming["streamed"]), _parse_received(incoming)
        task = StreamedPartitionTask(plan, received, streamed, reporter, settings=settings, tasks_sharing=sharing)
        return task, output
    sink = EmittedBatches() if outgoing is None else _parse_outgoing(outgoing, settings)
    source = _parse_task_source(order, settings)
    return PipelineTask(source, plan, sink, reporter, settings=settings, tasks_sharing=sharing), output


def build(order_json: str) -> tuple[BuildSideTask, StructType]:
    """Return the function for `mapInArrow` that builds one index ahead of the join, and its return type.

    The order has the fields of `make`, and `number`, the index of the join. In `builds`, null marks a source that is
    unknown in advance.

    Raises
    ------
    EnvironmentProblemError
        This worker has another version of sparkext.
    """
    order = _read(order_json)
    settings = read_settings(order["settings"].get, {})
    sharing = order.get("tasks_sharing")
    derived_probe = _parse_source(order["made"], settings, sharing) if "made" in order else None
    spec, sources = PipelineSpec.from_data(order["spec"]), _parse_sources(order, settings)
    task = BuildSideTask(spec, order["number"], sources, derived_probe, settings=settings, tasks_sharing=sharing)
    return task, _parse_schema(order["output"])


def plan(order_json: str) -> tuple[BalanceTask, StructType]:
    """Return the function for `mapInArrow` that plans the partitions of a join, and its return type.

    The order's fields:

    - `settings`: as for `make`
    - `probe` and `builds`: for each side `rows`, `bytes`, `sizes` and `sketch` per bucket, as hexadecimal int64 (see
      `outgoing_rows.RESULT`), `maps`, the number of its map tasks, and `paired` (see `balance_task`)
    - `ran`: the measurements of each partition of the previous join of this kind, see `bucket_costs.MeasuredWork`
    - `most_shares`: maximum number of parts into which the probe rows of a bucket can be split
    - `most_build_shares`: the same for build rows if partitions are units of a join matrix; null otherwise
    - `cores`: number of cores
    - `needs_probe`, `needs_build`: whether a bucket without rows on that side has no result
    - `output`: a Spark schema
    """
    order = _read(order_json)
    settings = read_settings(order["settings"].get, {})
    return BalanceTask(order, settings=settings, tasks_sharing=1), _parse_schema(order["output"])


def _read(order_json: str) -> dict[str, Any]:
    order: dict[str, Any] = json.loads(order_json)
    check_version(order.get("package", "before 0.1.0"))
    return order


def _parse_task_source(order: dict[str, Any], settings: Settings) -> TaskSource:
    if "received" in order:
        return PartitionFiles(_parse_received(order["received"]))
    if "made" in order:
        return DerivedProbe(_parse_source(order["made"], settings, order.get("tasks_sharing")))
    if "scan" in order:
        return ListedSplits(_parse_scan(order["scan"], settings))
    return ProbeBatches()


def _parse_sources(order: dict[str, Any], settings: Settings) -> tuple[BuildSource | None, ...]:
    sharing = order.get("tasks_sharing")
    return tuple(None if build is None else _parse_source(build, settings, sharing) for build in order["builds"])


def _parse_source(build: dict[str, Any], settings: Settings, tasks_sharing: int | None) -> BuildSource:
    if "broadcast" in build:
        schema = arrow_schema(_parse_schema(build["schema"]))
        return StreamedBroadcast(build["broadcast"], schema, build["crc"])
    threads = tasks_sharing or len(os.sched_getaffinity(0))
    scan = _parse_scan(build["scan"], settings)
    if "pipeline" not in build:
        return ScannedFiles(scan, _parse_splits(build["splits"]), build["max_bytes"], threads)
    pipeline = build["pipeline"]
    return DerivedRows(
        PipelineSpec.from_data(pipeline["spec"]),
        scan,
        tuple(map(_parse_splits, pipeline["parts"])),
        tuple(_parse_source(below, settings, tasks_sharing) for below in pipeline["builds"]),
        arrow_schema(_parse_schema(pipeline["emitted"])),
        parse_projection(pipeline["projection"]),
        arrow_schema(_parse_schema(build["schema"])),
        settings,
        build["max_bytes"],
        threads,
    )


def _parse_received(schemas: dict[str, Any]) -> PartitionSchemas:
    builds = {int(number): arrow_schema(_parse_schema(schema)) for number, schema in schemas["builds"].items()}
    return PartitionSchemas(arrow_schema(_parse_schema(schemas["probe"])), builds, schemas["owns_build"])


def _parse_outgoing(exchange: dict[str, Any], settings: Settings) -> OutgoingFile | OutgoingStream:
    keys = exchange["keys"]
    partitioning = Partitioning(
        tuple(key["column"] for key in keys),
        tuple(arrow_key_type(parse_key_type(key["type"])) for key in keys),
        tuple(key["null_safe"] for key in keys),
        RoutingTable(exchange["buckets"], exchange["buckets"]),
        exchange["keeps_unmatchable"],
        settings.debug_hash_mask,
    )
    if "streamed" in exchange:
        return OutgoingStream(partitioning, StreamedExchange(**exchange["streamed"]), settings.debug_partitions)
    return OutgoingFile(partitioning, exchange["run"])


def _parse_splits(data: Iterable[dict[str, Any]]) -> tuple[Split, ...]:
    return tuple(map(Split.from_data, data))


def _parse_scan(scan: dict[str, Any], settings: Settings) -> ParquetScan:
    schema = arrow_schema(_parse_schema(scan["schema"]))
    buckets = tuple(map(Bucket.from_data, scan["buckets"]))
    return ParquetScan(
        ScanSpec.from_data(scan["spec"]),
        schema,
        settings.morsel_max_rows,
        calendars=Calendars(**scan["calendars"]),
        planned=True,
        buckets=buckets,
    )


def _parse_schema(fields: dict[str, Any]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(fields)
