"""One run of the study: a pipeline of three joins in its own process, as in a Spark worker, but without Spark.

Reads its configuration as JSON from the command line, joins, writes every output batch with Arrow's stream writer as a
worker does, and prints the measurements as JSON. With the first argument `prepare`, it writes the build side instead.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.cache_misses import NoCountersError, cache_misses
from bench.control_groups import python
from bench.data.keys import padded, spread

RUNNING = "running"
"""The file that a run creates in its folder when it begins to join, as a signal to other processes."""

JOINS = 3
PAYLOAD_BYTES = 100
BATCH_ROWS = 10_000


def command(what: str, folder: Path, given: Mapping[str, Any]) -> list[str]:
    """Return the command that runs `prepare` or `run` in a process of its own, which prints the result of `run`."""
    return python("-m", "bench.cases.memory.study_worker", what, str(folder), json.dumps(given))


def prepare(folder: Path, rows: int, fan_out: int) -> None:
    """Write the build side of a fan-out: `rows` rows, `fan_out` of them with each key."""
    from sparkext.build_sides.file import write_build_file

    ids = np.arange(rows, dtype=np.int64)
    text = padded(ids % 1000, PAYLOAD_BYTES, "x")
    with (folder / f"build-{rows}-{fan_out}").open("wb") as stream:
        write_build_file(pa.table({"key": spread(ids // fan_out), "id": ids, "text": text}), stream)


def run(folder: Path, configuration: dict[str, Any]) -> dict[str, Any]:
    """Join; return seconds, rows, the sum of an output column, budgets, cache misses and the process's peak."""
    from bench.engines.deliveries import MODES
    from sparkext.build_sides.index_recipe import derive_index_recipe
    from sparkext.build_sides.index_store import open_build_side
    from sparkext.config import read_settings
    from sparkext.engine.join_pipeline import create_pipeline
    from sparkext.engine.pipeline import Resources
    from sparkext.engine.sources.row_batches import RowBatches
    from sparkext.memory.register import task_entered
    from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec

    keys, fan_out = configuration["build_rows"], configuration["fan_out"]
    # The first join multiplies the rows; the next joins find one match for each row.
    joins = tuple(
        JoinSpec("inner", (KeyPair(ColumnRef(PROBE, number), 0, "int64", False),), "hash", f"join {number}")
        for number in range(JOINS)
    )
    outputs = (ColumnRef(PROBE, 0), *(ColumnRef(number + 1, column) for number in range(JOINS) for column in (1, 2)))
    spec = PipelineSpec(JOINS, joins, outputs)
    defaults = read_settings(lambda key: None, {"spark.sparkext.report.decisions": 4_096})
    each = max(1, int(fan_out))
    files = [folder / f"build-{keys}-{each}", *[folder / f"build-{keys}-1"] * (JOINS - 1)]
    builds = [
        open_build_side(file, derive_index_recipe(spec, number, defaults.debug_hash_mask))
        for number, file in enumerate(files)
    ]
    schema = pa.schema(
        [("probe", pa.int64())]
        + [field for n in range(JOINS) for field in ((f"id{n}", pa.int64()), (f"text{n}", pa.string()))]
    )
    misses = _cache_misses()
    (folder / RUNNING).touch()
    rows = total = 0
    sink = pa.ipc.new_stream(pa.MockOutputStream(), schema)  # discards the data, as does the socket to the JVM
    with task_entered(1) as tasks:
        resources = replace(Resources.of_this_task(tasks), cores=configuration["cores"])
        mode = MODES[configuration["delivery"]]
        settings, resources = mode.apply(defaults, resources, configuration["threads"] == "independent")
        pipeline = create_pipeline(spec, builds, schema, settings, resources)
        source = RowBatches(_probe_side(configuration["probe_rows"], keys, fan_out), spec, defaults.morsel_max_rows)
        started, before = time.perf_counter(), misses()
        for batch in pipeline.run(source):
            sink.write_batch(batch)
            rows += batch.num_rows
            total += int(np.sum(batch.column(1).to_numpy(), dtype=np.int64))
        seconds, missed = time.perf_counter() - started, misses()
    return {
        "seconds": seconds,
        "rows": rows,
        "total": total,
        "cache_misses": None if missed is None or before is None else missed - before,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "decisions": pipeline.metrics.decisions,
        "budgets": [(one["budget_min"], one["budget_median"], one["budget_max"]) for one in pipeline.metrics.operators],
        "calls": [one["calls"] for one in pipeline.metrics.operators],
    }


def _cache_misses() -> Callable[[], int | None]:
    try:
        return cache_misses()
    except NoCountersError:
        return lambda: None


def expected(configuration: dict[str, Any]) -> tuple[int, int]:
    """Return the expected number of rows, and the expected sum of the first build side's ids, by arithmetic."""
    each = max(1, int(configuration["fan_out"]))
    keys = configuration["build_rows"] // each
    ids = np.arange(configuration["probe_rows"], dtype=np.int64)
    key = ids[_matching(ids, configuration["fan_out"])] % keys
    return int(key.size * each), int(np.sum(key * each * each + each * (each - 1) // 2, dtype=np.int64))


def _probe_side(rows: int, build_rows: int, fan_out: float) -> Iterator[pa.RecordBatch]:
    keys = build_rows // max(1, int(fan_out))
    for start in range(0, rows, BATCH_ROWS):
        ids = np.arange(start, min(start + BATCH_ROWS, rows), dtype=np.int64)
        first = np.where(_matching(ids, fan_out), ids % keys, -1 - ids)
        columns = [spread(first), *(spread(ids * 7919 % build_rows) for _ in range(JOINS - 1))]
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=["k0", "k1", "k2"])


def _matching(ids: np.ndarray, fan_out: float) -> np.ndarray:
    """Return a mask of the probe rows with a match: all of them, or a tenth if the fan-out is below 1."""
    return ids % 10 == 0 if fan_out < 1 else np.ones(ids.size, dtype=bool)


if __name__ == "__main__":
    what, where, given = sys.argv[1:4]
    if what == "prepare":
        prepare(Path(where), **json.loads(given))
    else:
        print(json.dumps(run(Path(where), json.loads(given))))
