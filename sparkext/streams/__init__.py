"""Joins of streams that Spark refuses, with any condition, and rows of one key in the order of time.

from sparkext.streams import stream_join
hits = stream_join(orders, quotes, on=[("price", ">=", "low"), ("price", "<", "high")])
"""

from __future__ import annotations

from sparkext.streams.asof import stream_asof_join
from sparkext.streams.join import stream_join
from sparkext.streams.order import ordered

__all__ = ["ordered", "stream_asof_join", "stream_join"]
