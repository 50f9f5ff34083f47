"""This package as a contestant over Parquet files: the work of Spark's Python workers, in threads of this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from bench.data.workloads import Workload
from bench.engines.in_memory import bench_settings, pipeline_spec
from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import Settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.memory.probes import MemoryProbe
from sparkext.parquet.metrics import ScanMetrics
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec, plan_splits
from sparkext.plans.pipeline.spec import PipelineSpec
from sparkext.rows.contiguous import make_contiguous

_SPLIT_BYTES = 4 << 20


def run(workload: Workload, folder: Path, threads: int) -> Iterator[pa.RecordBatch]:
    """Read and index every build side, then join the probe side's row groups, which threads take one by one."""
    settings = bench_settings()
    spec = pipeline_spec(workload)
    builds = _build_sides(workload, folder, spec, settings, threads)
    scan = _scan(workload.tables[workload.probe].schema, settings.morsel_max_rows)
    resources = Resources(MemoryProbe().headroom, cores=threads)
    pipeline = create_pipeline(spec, builds, workload.schema, settings, resources)
    parts = plan_splits([_file(folder, workload.probe)], 1, _SPLIT_BYTES, 0)
    return pipeline.run(ScannedSplits(scan, [split for part in parts for split in part], spec, builds))


def _build_sides(
    workload: Workload, folder: Path, spec: PipelineSpec, settings: Settings, threads: int
) -> list[BuildSide]:
    def build(number: int) -> BuildSide:
        name = workload.joins[number].build
        scan = _scan(workload.tables[name].schema, settings.morsel_max_rows)
        table = scan.table([_file(folder, name).split(0, 1 << 62)], threads, lambda rows, size: None)
        columns = [make_contiguous(column) for column in table.columns]
        return index_in_memory(table.num_rows, columns, derive_index_recipe(spec, number, settings.debug_hash_mask))

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(build, range(len(spec.joins))))


def _scan(schema: pa.Schema, max_rows: int) -> ParquetScan:
    spec = ScanSpec(tuple(map(ScanColumn, schema.names)), len(schema), None, case_sensitive=True)
    return ParquetScan(spec, schema, max_rows, metrics=ScanMetrics())


def _file(folder: Path, name: str) -> DataFile:
    path = folder / f"{name}.parquet"
    return DataFile(str(path), path.stat().st_size)
