"""The worker function of an as-of join of two streams."""

from __future__ import annotations

from dataclasses import dataclass

from sparkext.asof.nearest_rows import NearestRows
from sparkext.streaming.join.join_task import StreamJoinTask
from sparkext.streaming.state.run_lookup import RunLookup
from sparkext.streaming.state.run_rows import RunRows


@dataclass(frozen=True)
class StreamAsOfJoinTask(StreamJoinTask):
    """Joins the received blocks of one partition, each left row with the nearest right row."""

    def expired_results(self, lookup: RunLookup, left: list[RunRows], right: list[RunRows]) -> NearestRows:
        """Return the results of an as-of join."""
        return NearestRows(self.join, lookup, left, right)
