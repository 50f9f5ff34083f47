"""Files that are larger than the free memory, written without filling it.

What has been written lies in memory until it is on the disk, and is free for others only then. The system waits for the
disk when the whole machine has too much of it, but not when a control group has: that one runs out of memory.
"""

from __future__ import annotations

import io
import os
from typing import Any

from sparkext.memory.probes import process_probe

_STEP = 8 << 20
_SHARE = 1 / 16
"""Of the free memory, so much may wait for the disk."""


class PacedWriter(io.BufferedWriter):
    """A binary file that waits for the disk whenever much of the free memory does."""

    _waiting = 0

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        whole = memoryview(data).cast("B")
        for start in range(0, len(whole), _STEP):
            self._waiting += super().write(whole[start : start + _STEP])
            if self._waiting >= _STEP:
                self._pace()
        return len(whole)

    def sync(self) -> None:
        """Wait until all of it is on the disk."""
        self.flush()
        os.fdatasync(self.fileno())
        self._waiting = 0

    def _pace(self) -> None:
        headroom = process_probe().of_system()
        if headroom is not None and self._waiting > headroom.bytes * _SHARE:
            self.sync()
