"""Counts the processor's cache misses, in this process and in the threads that it starts afterwards.

Uses Linux's perf events, which many virtual machines and containers do not offer.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Callable

_CALLS = {"x86_64": 298, "aarch64": 241}
_HARDWARE, _CACHE_MISSES = 0, 3
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # perf_event_attr, in its first version
_INHERITED, _WITHOUT_KERNEL, _WITHOUT_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_CLOSED_ON_EXEC = 8


class NoCountersError(Exception):
    """Cache misses cannot be counted on this machine; the message gives the reason."""


def cache_misses() -> Callable[[], int]:
    """Start to count, and return a function that returns the count so far.

    Raises
    ------
    NoCountersError
    """
    number = _CALLS.get(platform.machine())
    if number is None or platform.system() != "Linux":
        raise NoCountersError(f"no way to ask for counters on {platform.system()}, {platform.machine()}")
    flags = _INHERITED | _WITHOUT_KERNEL | _WITHOUT_HYPERVISOR
    attributes = _ATTRIBUTES.pack(_HARDWARE, _ATTRIBUTES.size, _CACHE_MISSES, 0, 0, 0, flags, 0, 0, 0)
    system = ctypes.CDLL(None, use_errno=True)
    descriptor = system.syscall(number, attributes, 0, -1, -1, _CLOSED_ON_EXEC)
    if descriptor < 0:
        raise NoCountersError(f"the system offers no counters of the processor: {os.strerror(ctypes.get_errno())}")

    def count() -> int:
        return int.from_bytes(os.read(descriptor, 8), "little")

    return count
