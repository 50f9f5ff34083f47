"""Our side of the in-memory comparison: a pipeline over Arrow tables in this process, without Spark and without files.

Indexes are built side by side, then every thread runs a pipeline of its own over the batches that it takes from a
shared iterator. Kernels and Arrow release the interpreter lock, so threads do run side by side.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import pyarrow as pa

from bench.workloads import Workload
from sparkext.config import Settings, read_settings
from sparkext.index_store import BuildSide, index_in_memory
from sparkext.memory import MemoryProbe
from sparkext.pipeline import Pipeline, index_recipe
from sparkext.plans.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec

T = TypeVar("T")

_QUEUED_PER_THREAD = 2
_KEY_TYPES = {pa.int64(): "int64", pa.int32(): "int32", pa.string(): "string"}


def pipeline_spec(workload: Workload, algorithm: str = "auto") -> PipelineSpec:
    """Describe the workload's joins to the pipeline."""
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


def run(workload: Workload, threads: int, algorithm: str = "auto") -> Iterator[pa.RecordBatch]:
    """Build every index, then stream the probe table through all joins."""
    settings = read_settings(lambda key: None, {})
    spec = pipeline_spec(workload, algorithm)
    builds = build_sides(workload, spec, settings, threads)
    batches = workload.tables[workload.probe].to_batches()
    if threads == 1:
        return _pipeline(spec, builds, workload.schema, settings, 1).run(batches)
    shared = Shared(batches)
    pipelines = [_pipeline(spec, builds, workload.schema, settings, threads) for _ in range(threads)]
    return merged([pipeline.run(shared) for pipeline in pipelines])


def build_sides(workload: Workload, spec: PipelineSpec, settings: Settings, threads: int) -> list[BuildSide]:
    """Make the build tables contiguous and index them, `threads` at a time, the largest first."""

    def build(number: int) -> BuildSide:
        table = workload.tables[workload.joins[number].build]
        columns = [column.combine_chunks() for column in table.columns]
        return index_in_memory(table.num_rows, columns, index_recipe(spec, number, settings.debug_hash_mask))

    order = sorted(range(len(spec.joins)), key=lambda number: -workload.tables[workload.joins[number].build].num_rows)
    with ThreadPoolExecutor(threads) as pool:
        futures = {number: pool.submit(build, number) for number in order}
        return [futures[number].result() for number in range(len(spec.joins))]


def _pipeline(
    spec: PipelineSpec, builds: Sequence[BuildSide], schema: pa.Schema, settings: Settings, threads: int
) -> Pipeline:
    return Pipeline(spec, builds, schema, settings, MemoryProbe().headroom, tasks=lambda limit: threads)


class Shared(Generic[T]):
    """One iterator that several threads draw from."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        with self._lock:
            return next(self._items)


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Run every stream in a thread of its own and yield what they produce, through a short queue."""
    output: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(_QUEUED_PER_THREAD * len(streams))

    def drain(stream: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in stream:
                output.put(batch)
            output.put(None)
        except BaseException as error:
            output.put(error)

    for stream in streams:
        threading.Thread(target=drain, args=(stream,), daemon=True).start()
    running = len(streams)
    while running:
        item = output.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            running -= 1
        else:
            yield item
