"""The parent of Spark's Python workers, with everything that a pipeline needs loaded before it forks.

`sparkext.configure` sets it as `spark.python.daemon.module`. Spark's own daemon forks bare workers, and each would
import pyarrow, numba and the kernels, and load the compiled kernels from numba's cache, before its first morsel. Pages
loaded before the fork are shared.
"""

from __future__ import annotations

import gc
import sys

from sparkext.memory import address_space, freed


def preload() -> None:
    """Load what pipelines need. Starts no thread of Python's: a fork would lose it.

    What goes wrong here is told and goes on: this process serves all of Spark's Python workers, not only pipelines.
    """
    try:
        from sparkext.worker.warm_up import warm_up

        warm_up()
    except Exception as error:
        print(f"sparkext: nothing was loaded ahead for Python workers: {error!r}", file=sys.stderr)


def main() -> None:
    """Preload, then become Spark's daemon."""
    freed.keep()
    address_space.spare_for_workers()
    from pyspark.daemon import manager

    preload()
    # Workers collect garbage after every task: what was loaded here is none, and looking at all of it takes 50 ms.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
