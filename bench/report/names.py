"""Titles of cases in tables and figures, and the cases whose data depend on a scale factor."""

from __future__ import annotations

NAMES = {
    "end_to_end.one-join": "lineitem ⋈ orders, no jar",
    "end_to_end.three-joins": "three TPC-H joins, no jar",
    "end_to_end.aggregate": "three TPC-H joins, sums, no jar",
    "scan.one-join": "lineitem ⋈ orders",
    "scan.three-joins": "three TPC-H joins",
    "scan.aggregate": "three TPC-H joins, sums",
    "scan.parquet": "three TPC-H joins, written",
    "ordered.points": "1 M points in 20 K intervals",
    "ordered.many-points": "20 M points in 1 M intervals",
    "ordered.overlap": "overlaps of 2 M and 2 M intervals",
    "ordered.theta": "200 K points near 20 K lines",
    "ordered.asof": "2 M rows as of 1 M",
    "ordered.many-asof": "10 M rows as of 5 M",
    "hard.graph": "paths in a power-law graph",
    "hard.skew": "keys by Zipf's law",
    "hard.strings": "keys that are text",
    "comet.three-joins": "compared with Comet 0.12: three TPC-H joins, sums",
    "comet.tpch": "compared with Comet 0.12: TPC-H",
    "comet.graph": "compared with Comet 0.12: paths in a power-law graph",
    "comet.skew": "compared with Comet 0.12: keys by Zipf's law",
    "comet.strings": "compared with Comet 0.12: keys that are text",
    "engines.clustered": "in memory: three TPC-H joins",
    "engines.shuffled": "in memory: the same, shuffled",
    "engines.sparse": "in memory: keys over 64 bits",
    "engines.sparse-shuffled": "in memory: keys over 64 bits, shuffled",
    "engines.strings": "in memory: keys that are text",
    "engines.composite": "in memory: two int64 keys",
    "engines.composite-int32": "in memory: two int32 keys",
    "engines.many-to-many": "in memory: ten matches a row",
    "engines.many-to-many-sparse": "in memory: ten matches, keys over 64 bits",
    "engines.files": "from files: three TPC-H joins",
    "tpch.queries": "TPC-H",
    "tpcds.queries": "TPC-DS",
}

HEADLINES = {
    "end_to_end.three-joins": "rows from Spark",
    "scan.one-join": "cold",
    "scan.three-joins": "cold",
    "scan.aggregate": "cold",
    "ordered.points": "cold",
    "ordered.asof": "cold",
    "hard.graph": "cold",
    "hard.skew": "cold",
    "hard.strings": "cold",
    "comet.three-joins": "cold",
}
"""Rows of the first plot: each type of join once, in this form, at its largest scale factor, including losses."""

QUERIES = ("tpch.queries", "tpcds.queries", "comet.tpch")
"""Cases of whole queries. They have a table for each query, whose `part` is the name of the query."""

_GENERATED = (
    "micro",
    "groups",
    "ordered",
    "hard",
    "scaling",
    "memory",
    "study",
    "survival",
    "limits",
    "soak",
    "controller.follow",
    "skew",
    "nexmark",
    "flink",
    "streams",
    "matrix",
    "ordered_streams",
    "cql",
)
_GENERATED_AMONG_OTHERS = ("many-to-many", "comet.graph", "comet.skew", "comet.strings", "exchange.growth")


def is_scaled(case: str) -> bool:
    """Return whether a case joins tables of TPC-H or TPC-DS, whose sizes depend on the scale factor.

    All result lines have a scale factor. It has no meaning for cases with generated data, whose sizes are fixed.
    """
    return not case.startswith(_GENERATED) and not any(name in case for name in _GENERATED_AMONG_OTHERS)
