"""What becomes of memory that a worker has freed: it stays with the worker while there is plenty of it.

A page that a process touches for the first time is cleared by the system, and on a virtual machine often fetched from
the host: measured on one, 2 ns a byte, 20 times what it takes to touch it again, which made up half of the time of
building an index from files. So Arrow's allocator is told to keep what is freed, for the next task or query, and gives
it back at the end of a task where that is no small part of what is free, and when budgets are about to be cut.
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


def keep() -> None:
    """Ask Arrow's allocator to keep freed memory for a minute, as long as Spark keeps a worker that has nothing to do.

    For this process and those forked from it, and only before pyarrow is loaded. A setting of the user's stays.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", str(_KEEP_MILLISECONDS))


def release_unless_ample() -> None:
    """Return freed memory to the system, unless the headroom is known to be many times as large."""
    import pyarrow as pa

    headroom = process_probe().headroom()
    if headroom is None or headroom.bytes < _AMPLE * pa.default_memory_pool().max_memory():
        release()


def release() -> None:
    """Return what this thread has freed to the system: allocators keep it by thread."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    process_probe().expire()


def reclaim() -> bool:
    """Return freed memory to the system, unless that was done a moment ago; return whether it was done now."""
    global _reclaimed
    now = time.monotonic()
    if now < _reclaimed + _RECLAIM_SECONDS:
        return False
    release()
    _reclaimed = now
    return True


FreeMemory = Callable[[], tuple[int, str] | None]
"""Reads how many bytes may be taken, and what limits them; None if that is unknown."""


def headroom_for(size: int, read: FreeMemory | None = None) -> int | None:
    """Return the headroom in bytes, None if unknown. If it is less than `size`, what was freed is given back first.

    `read`: that of one task; without, it is that of the process.
    """
    read = process_probe().headroom if read is None else read
    found = read()
    if found is not None and found[0] < size and reclaim():
        found = read()
    return None if found is None else found[0]
