"""What becomes of memory that a worker has freed: it stays with the worker while there is plenty of it.

A page that a process touches for the first time is cleared by the system, and on a virtual machine often fetched from
the host: measured on one, 2 ns a byte, 20 times what it takes to touch it again, which made up half of the time of
building an index from files. So Arrow's allocator is told to keep what is freed, for the next task or query, and gives
it back at the end of a task where that is no small part of what is free.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkext.memory import CappedProbe, Headroom, MemoryProbe

_KEEP_MILLISECONDS = 60_000
_AMPLE = 16
_TIGHT = 4
_RELEASE_SECONDS = 0.1


def keep() -> None:
    """Ask Arrow's allocator to keep freed memory for a minute, as long as Spark keeps a worker that has nothing to do.

    For this process and those forked from it, and only before pyarrow is loaded. A setting of the user's stays.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", str(_KEEP_MILLISECONDS))


def release_unless_ample() -> None:
    """Return freed memory to the system, unless the headroom is known to be many times as large."""
    import pyarrow as pa

    from sparkext.memory import process_probe

    headroom = process_probe().headroom()
    pool = pa.default_memory_pool()
    if headroom is None or headroom.bytes < _AMPLE * pool.max_memory():
        pool.release_unused()


def headroom_after_release(probe: MemoryProbe | CappedProbe) -> Callable[[], Headroom | None]:
    """Return what reads the headroom, and gives back what was freed before it says that there is little."""
    import pyarrow as pa

    pool = pa.default_memory_pool()
    released = 0.0

    def headroom() -> Headroom | None:
        nonlocal released
        found = probe.headroom()
        if found is None or found.bytes >= _TIGHT * pool.max_memory() or time.monotonic() < released + _RELEASE_SECONDS:
            return found
        pool.release_unused()
        released = time.monotonic()
        return probe.headroom()

    return headroom
