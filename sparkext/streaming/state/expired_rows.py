"""The rows that expire in a batch: from then on, no new row can match them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, PipelineSpec, RangePair
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows
from sparkext.streaming.state.stream_state import StoredSide, is_expired


def find_expired_rows(
    lookup: RunLookup, side: StoredSide, runs: list[RunRows], low: int, high: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that expire after `low` and up to `high`, both in µs, in the stored schema."""
    if high <= low:
        return
    until = side.hidden[0]
    kind = side.schema.types[until]
    times = pa.array([low, high], pa.int64()).cast(kind)
    bounds = pa.Table.from_arrays([times[:1], times[1:]], names=["low", "high"])
    time_type = "timestamp" if kind.tz else "timestamp_ntz"
    ranges = tuple(RangePair(ColumnRef(PROBE, number), op, until, time_type) for number, op in enumerate(("<", ">=")))
    outputs = tuple(ColumnRef(1, number) for number in range(len(side.schema)))
    spec = PipelineSpec(2, (JoinSpec("inner", (), "auto", "over", ranges=ranges),), outputs)
    for run in runs:
        if not is_expired(run.info, low):
            yield from lookup.found(spec, side.schema, bounds, run)
