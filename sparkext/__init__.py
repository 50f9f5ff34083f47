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
    from sparkext.spark.session import configure
    from sparkext.transforms.asof import asof_join
    from sparkext.transforms.declined import declined
    from sparkext.transforms.join import pipelined_join
    from sparkext.transforms.reporting import report
    from sparkext.transforms.scan import scan_parquet
    from sparkext.transforms.theta import theta_join

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
    "asof_join": "sparkext.transforms.asof",
    "configure": "sparkext.spark.session",
    "declined": "sparkext.transforms.declined",
    "pipelined_join": "sparkext.transforms.join",
    "report": "sparkext.transforms.reporting",
    "scan_parquet": "sparkext.transforms.scan",
    "theta_join": "sparkext.transforms.theta",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
