"""The cases of `python -m bench --quick`, which run on tiny data, in one process.

Sessions with the extension come first: a JVM that was started without the extension cannot load it later.
"""

from __future__ import annotations

SCALE_FACTOR = 0.01
JVM = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For short queries on few cores, the second compiler and the verification of bytecode cost more than they save."""

QUICK = (
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
    "controller.best-size.clustered",
    "controller.cost.clustered",
)
