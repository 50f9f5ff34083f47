"""Handling of memory that a worker has freed: the worker keeps it while free memory is ample.

When a process touches a page for the first time, the system clears it, and on a virtual machine often fetches it from
the host. Measured on a virtual machine: first touches cost 2 ns per byte, 20 times the cost of later touches, and were
half of the time to build an index from files. Therefore, Arrow's allocator is configured to keep freed memory for the
next task or query. Freed memory is returned to the system at the end of a task if it is a significant fraction of the
headroom, and before budgets would be reduced.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sparkext.memory.probes import process_probe

_KEEP_MILLISECONDS = 60_000
_AMPLE = 16
_RECLAIM_SECONDS = 0.1

_reclaimed = 0.0


def keep_freed_memory() -> None:
    """Configure Arrow's allocator to keep freed memory for a minute: Spark, too, keeps idle workers for a minute.

    This applies to this process and its forks. Call it before pyarrow is loaded. A setting of the user is kept.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", str(_KEEP_MILLISECONDS))


def release_unless_ample() -> None:
    """Return freed memory to the system, unless the headroom is at least `_AMPLE` times the peak allocation."""
    import pyarrow as pa

    headroom = process_probe().headroom()
    if headroom is None or headroom.bytes < _AMPLE * pa.default_memory_pool().max_memory():
        release_memory()


def release_memory() -> None:
    """Return the memory freed by this thread to the system: allocators keep freed memory per thread."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    process_probe().expire()


def reclaim() -> bool:
    """Return freed memory to the system, at most every `_RECLAIM_SECONDS`; return whether it was done."""
    global _reclaimed
    now = time.monotonic()
    if now < _reclaimed + _RECLAIM_SECONDS:
        return False
    release_memory()
    _reclaimed = now
    return True


FreeMemory = Callable[[], tuple[int, str] | None]
"""Returns the free bytes and the name of the binding limit; None if unknown."""


def headroom_for(size: int, read: FreeMemory | None = None) -> int | None:
    """Return the headroom in bytes, None if unknown. If it is less than `size`, first release freed memory.

    `read` returns the headroom of a task; by default, the headroom of the process is used.
    """
    read = process_probe().headroom if read is None else read
    free = read()
    if free is not None and free[0] < size and reclaim():
        free = read()
    return None if free is None else free[0]
