"""The parent process of Spark's Python workers: it loads all modules and kernels of a pipeline before it forks.

`sparkext.configure` sets `spark.python.daemon.module` to this module. Workers forked by Spark's own daemon would each
import pyarrow, numba and the kernels, and load the compiled kernels from numba's cache, before their first morsel. All
workers share the memory pages that are loaded before the fork.
"""

from __future__ import annotations

import gc
import sys

from sparkext.memory import address_space, freed


def preload() -> None:
    """Load the modules and kernels of pipelines. Starts no Python thread, because a fork would lose it.

    Prints an error and continues, because this process is the parent of all Python workers of Spark, not only of those
    that run pipelines.
    """
    try:
        from sparkext.worker.warm_up import warm_up

        warm_up()
    except Exception as error:
        print(f"sparkext: modules and kernels were not preloaded for Python workers: {error!r}", file=sys.stderr)


def main() -> None:
    """Preload, then become Spark's daemon."""
    freed.keep_freed_memory()
    address_space.spare_for_workers()
    from pyspark.daemon import manager

    preload()
    # Freeze loaded modules out of the garbage collector: workers collect garbage after every task, and traversing these
    # objects would cost 50 ms each time.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
