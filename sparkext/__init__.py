"""Pipelined joins for Spark, run as numba kernels over Arrow buffers in Spark's Python workers.

    from sparkext import pipelined_join, report
    out = facts.transform(pipelined_join(dim, on="key"))

Heavy packages are imported on first use: importing this package loads neither PySpark nor numba nor pyarrow.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkext._version import __version__
from sparkext.errors import SparkExtError

if TYPE_CHECKING:
    from sparkext.api.declined import declined
    from sparkext.api.join import pipelined_join
    from sparkext.api.reporting import report
    from sparkext.api.scan import scan_parquet
    from sparkext.api.theta import theta_join
    from sparkext.asof.as_of_join import asof_join
    from sparkext.spark.session import configure

_here = Path(__file__).parent
if not (_here / "kernels").is_dir():
    # A checkout, with `kernels` and `plans` next to this folder instead of in it. Python finds this folder before an
    # installed package if it runs in the checkout's root, and so do Spark's workers.
    __path__.append(str(_here.parent))

__all__ = [
    "SparkExtError",
    "__version__",
    "asof_join",
    "configure",
    "declined",
    "pipelined_join",
    "report",
    "scan_parquet",
    "theta_join",
]

_LAZY = {
    "asof_join": "sparkext.asof.as_of_join",
    "configure": "sparkext.spark.session",
    "declined": "sparkext.api.declined",
    "pipelined_join": "sparkext.api.join",
    "report": "sparkext.api.reporting",
    "scan_parquet": "sparkext.api.scan",
    "theta_join": "sparkext.api.theta",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
