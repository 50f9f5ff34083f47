"""What `python -m bench --quick` runs: cases of every suite that tiny data can show to work, in one process.

Sessions with the extension come first: a JVM that was started without it cannot load it any more.
"""

from __future__ import annotations

SCALE_FACTOR = 0.01
JVM = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Short queries on few cores: a second compiler, and a check of Spark's own byte code, cost more than they save."""

QUICK = (
    "scan.aggregate",
    "ordered.points",
    "ordered.asof",
    "hard.strings",
    "tpch.queries",
    "tpcds.queries",
    "end_to_end.three-joins",
    "memory.one-copy",
    "memory.index-bytes",
    "micro.kernels",
    "kernels.orders",
    "ordered_streams.slots",
    "cql.recursive",
    "groups.int-text",
    "engines.clustered",
    "engines.strings",
    "engines.composite",
    "engines.files",
    "scaling.joins",
    "controller.cost.clustered",
)
