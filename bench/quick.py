"""What `python -m bench --quick` runs: cases of every suite that tiny data can show to work, in one process.

Sessions with the extension come first: a JVM that was started without it cannot load it any more.
"""

from __future__ import annotations

SCALE_FACTOR = 0.01

QUICK = (
    "scan.three-joins",
    "scan.aggregate",
    "ordered.points",
    "ordered.overlap",
    "ordered.theta",
    "ordered.asof",
    "hard.graph",
    "hard.skew",
    "hard.strings",
    "tpch.queries",
    "tpcds.queries",
    "scaling.scan-data",
    "scaling.scan-joins",
    "end_to_end.three-joins",
    "memory.one-copy",
    "memory.index-bytes",
    "micro.kernels",
    "kernels.orders",
    "engines.clustered",
    "engines.sparse",
    "engines.strings",
    "engines.composite",
    "engines.many-to-many",
    "engines.files",
    "scaling.data",
    "scaling.joins",
    "controller.best-size.clustered",
    "controller.cost.clustered",
)
