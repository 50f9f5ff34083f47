"""The parent process of workers imports modules before it forks."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

_LOADED = """
import json, sys, threading
from sparkext.daemon import preload
preload()
from sparkext.kernels.columns import gather
from sparkext.kernels.indexes import dense_index, hash_index, matches
kernels = [dense_index._lookup_unique, hash_index._lookup_words, hash_index._lookup_bytes, gather._gather_bytes]
print(json.dumps({
    "modules": sorted(
        {"numba", "pyarrow", "sparkext.engine.pipeline", "sparkext.worker.work_order"}.intersection(sys.modules)
    ),
    "compiled": [len(kernel.signatures) for kernel in kernels],
    "threads": threading.active_count(),
}))
"""


def test_kernels_are_loaded_before_the_fork() -> None:
    ran = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=300, check=True)
    told = json.loads(ran.stdout)
    assert told["modules"] == ["numba", "pyarrow", "sparkext.engine.pipeline", "sparkext.worker.work_order"]
    assert all(told["compiled"])
    assert told["threads"] == 1
    assert not ran.stderr


@pytest.mark.parametrize("broken", ["sparkext.worker.warm_up", "numba"])
def test_a_daemon_that_cannot_load_goes_on(broken: str) -> None:
    script = f"import sys; sys.modules[{broken!r}] = None\nfrom sparkext.daemon import preload\npreload()"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert "modules and kernels were not preloaded for Python workers" in ran.stderr


def test_workers_are_forked_from_it(spark: SparkSession) -> None:
    def parents_command(batches):  # type: ignore[no-untyped-def]
        import gc
        import os
        import pathlib

        import pyarrow as pa

        for _ in batches:
            command = pathlib.Path(f"/proc/{os.getppid()}/cmdline").read_text()
            yield pa.record_batch([pa.array([command]), pa.array([gc.get_freeze_count()])], names=["command", "frozen"])

    rows = spark.range(1).mapInArrow(parents_command, "command string, frozen long").collect()
    assert all("sparkext.daemon" in row["command"] for row in rows)
    assert all(row["frozen"] > 10_000 for row in rows)  # else every task would end with a collection of all objects
