"""Joins of streams that Spark refuses, rows of one key in the order of time, and recursive continuous queries.

from sparkext.streams import stream_join
hits = stream_join(orders, quotes, on=[("price", ">=", "low"), ("price", "<", "high")])
"""

from __future__ import annotations

from sparkext.streams.asof import stream_asof_join
from sparkext.streams.continuous import ContinuousQueries, cql
from sparkext.streams.join import stream_join
from sparkext.streams.order import ordered

__all__ = ["ContinuousQueries", "cql", "ordered", "stream_asof_join", "stream_join"]
