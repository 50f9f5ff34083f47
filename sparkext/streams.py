"""Joins of streams that Spark refuses, rows of one key in the order of time, and recursive continuous queries.

from sparkext.streams import stream_join
hits = stream_join(orders, quotes, on=[("price", ">=", "low"), ("price", "<", "high")])
"""

from __future__ import annotations

from sparkext.asof.stream_as_of_join import stream_asof_join
from sparkext.streaming.cql.continuous import ContinuousQueries, cql
from sparkext.streaming.join.stream_join import stream_join
from sparkext.streaming.ordered.ordered import ordered

__all__ = ["ContinuousQueries", "cql", "ordered", "stream_asof_join", "stream_join"]
