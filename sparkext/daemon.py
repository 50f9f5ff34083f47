"""The parent of Spark's Python workers, with everything that a pipeline needs loaded before it forks.

`sparkext.configure` sets it as `spark.python.daemon.module`. Spark's own daemon forks bare workers, and each would
import pyarrow, numba and the kernels, and load the compiled kernels from numba's cache, before its first morsel. Pages
loaded before the fork are shared.
"""

from __future__ import annotations


def preload() -> None:
    """Import what pipelines need. Starts no thread: a fork would lose it."""


def main() -> None:
    """Preload, then become Spark's daemon."""
    from pyspark.daemon import manager

    preload()
    manager()


if __name__ == "__main__":
    main()
