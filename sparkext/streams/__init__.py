"""Joins of streams that Spark refuses: any condition, on Structured Streaming.

from sparkext.streams import stream_join
hits = stream_join(orders, quotes, on=[("price", ">=", "low"), ("price", "<", "high")])
"""

from __future__ import annotations

from sparkext.streams.asof import stream_asof_join
from sparkext.streams.join import stream_join

__all__ = ["stream_asof_join", "stream_join"]
