"""This package as a contestant over Parquet files: the work of Spark's Python workers, in threads of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from bench.data.workloads import Workload
from bench.engines.deliveries import Mode
from bench.engines.in_memory import DEFAULTS, pipeline_spec, thread_resources
from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.memory.register import task_entered
from sparkext.parquet.metrics import ScanMetrics
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec, Split, plan_splits
from sparkext.plans.pipeline.spec import PipelineSpec
from sparkext.rows.contiguous import make_contiguous

_SPLIT_BYTES = 4 << 20


def run(workload: Workload, folder: Path, threads: int) -> Iterator[pa.RecordBatch]:
    """Read and index every build side, then join the probe side's row groups, which threads take one by one."""
    spec = pipeline_spec(workload)
    builds = _build_sides(workload, folder, spec, threads)
    scan = _scan(workload.tables[workload.probe].schema)
    pipeline = create_pipeline(spec, builds, workload.schema, DEFAULTS, thread_resources(threads))
    parts = plan_splits([_file(folder, workload.probe)], 1, _SPLIT_BYTES, 0)
    return pipeline.run(ScannedSplits(scan, [split for part in parts for split in part], spec, builds))


def run_task(
    batches: Iterable[pa.RecordBatch], workload: Workload, folder: Path, mode: Mode
) -> Iterator[pa.RecordBatch]:
    """Join batches of the probe side as a task of Spark does, in a delivery mode. Build sides are mapped files."""
    spec = pipeline_spec(workload)
    builds = [
        ScannedFiles(_scan(workload.tables[name].schema), (_whole(folder, name),), 1 << 40, 1).open(
            derive_index_recipe(spec, number, DEFAULTS.debug_hash_mask)
        )
        for number, name in enumerate(join.build for join in workload.joins)
    ]
    with task_entered(1) as tasks:
        settings, resources = mode.apply(DEFAULTS, Resources.of_this_task(tasks))
        pipeline = create_pipeline(spec, builds, workload.schema, settings, resources)
        yield from pipeline.run(RowBatches(batches, spec, DEFAULTS.morsel_max_rows))


def _build_sides(workload: Workload, folder: Path, spec: PipelineSpec, threads: int) -> list[BuildSide]:
    def build(number: int) -> BuildSide:
        name = workload.joins[number].build
        table = _scan(workload.tables[name].schema).table([_whole(folder, name)], threads, lambda rows, size: None)
        columns = [make_contiguous(column) for column in table.columns]
        return index_in_memory(table.num_rows, columns, derive_index_recipe(spec, number, DEFAULTS.debug_hash_mask))

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(build, range(len(spec.joins))))


def _scan(schema: pa.Schema) -> ParquetScan:
    spec = ScanSpec(tuple(map(ScanColumn, schema.names)), len(schema), None, case_sensitive=True)
    return ParquetScan(spec, schema, DEFAULTS.morsel_max_rows, metrics=ScanMetrics())


def _whole(folder: Path, name: str) -> Split:
    return _file(folder, name).split(0, 1 << 62)


def _file(folder: Path, name: str) -> DataFile:
    path = folder / f"{name}.parquet"
    return DataFile(str(path), path.stat().st_size)
