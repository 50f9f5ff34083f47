"""This package as a contestant in memory: a pipeline over Arrow tables in this process, without Spark and files.

Indexes are built concurrently. Then each thread repeatedly takes a batch and runs it through the pipeline. Kernels and
Arrow release the interpreter lock, so threads do run in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from bench.data.workloads import Workload
from bench.engines.deliveries import independently, with_fixed_outputs
from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import Settings, read_settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.memory.probes import MemoryProbe
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec

_KEY_TYPES = {pa.int64(): "int64", pa.int32(): "int32", pa.string(): "string"}
DEFAULTS = read_settings(lambda key: None, {})


def pipeline_spec(workload: Workload, algorithm: str = "auto") -> PipelineSpec:
    """Return the spec of a pipeline that runs the workload's joins."""
    probe = workload.tables[workload.probe].schema
    outputs = [ColumnRef(PROBE, column) for column in range(len(probe))]
    joins = []
    for source, join in enumerate(workload.joins, start=1):
        build = workload.tables[join.build].schema
        keys = tuple(_key_pair(probe, build, *names) for names in join.keys)
        joins.append(JoinSpec("inner", keys, algorithm, join.build))
        outputs += [ColumnRef(source, column) for column in range(len(build))]
    return PipelineSpec(len(probe), tuple(joins), tuple(outputs))


def _key_pair(probe: pa.Schema, build: pa.Schema, probe_key: str, build_key: str) -> KeyPair:
    place = probe.get_field_index(probe_key)
    key_type = _KEY_TYPES[probe.field(place).type]
    return KeyPair(ColumnRef(PROBE, place), build.get_field_index(build_key), key_type, null_safe=False)


def run(
    workload: Workload, threads: int, algorithm: str = "auto", fixed_rows: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Build every index, then stream the probe table through all joins, in outputs of `fixed_rows` if given."""
    settings, resources = DEFAULTS, thread_resources(threads)
    if fixed_rows is not None:
        settings, resources = with_fixed_outputs(fixed_rows, settings, resources)
    spec = pipeline_spec(workload, algorithm)
    builds = build_sides(workload, spec, settings, threads)
    pipeline = create_pipeline(spec, builds, workload.schema, settings, resources)
    batches = workload.tables[workload.probe].to_batches()
    return pipeline.run(RowBatches(batches, spec, DEFAULTS.morsel_max_rows))


def thread_resources(threads: int) -> Resources:
    """Return the memory of this process, and threads with a morsel each: they stand for Spark's tasks here."""
    return Resources(MemoryProbe().headroom, cores=threads, delivery=independently)


def build_sides(workload: Workload, spec: PipelineSpec, settings: Settings, threads: int) -> list[BuildSide]:
    """Make the build tables contiguous and index them, `threads` at a time, starting with the largest."""

    def build(number: int) -> BuildSide:
        table = workload.tables[workload.joins[number].build]
        columns = [column.combine_chunks() for column in table.columns]
        return index_in_memory(table.num_rows, columns, derive_index_recipe(spec, number, settings.debug_hash_mask))

    order = sorted(range(len(spec.joins)), key=lambda number: -workload.tables[workload.joins[number].build].num_rows)
    with ThreadPoolExecutor(threads) as pool:
        futures = {number: pool.submit(build, number) for number in order}
        return [futures[number].result() for number in range(len(spec.joins))]
