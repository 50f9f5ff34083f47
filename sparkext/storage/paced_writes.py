"""Files that are larger than the free memory, written without filling it.

Written data occupies memory until it is on disk. The system blocks writers when the whole machine has too much
unwritten data, but not when a control group has: the group runs out of memory.
"""

from __future__ import annotations

import io
import os
from typing import Any

from sparkext.memory.probes import process_probe

_STEP = 8 << 20
_SHARE = 1 / 16
"""Fraction of the free memory that unwritten data may occupy."""


class PacedWriter(io.BufferedWriter):
    """A binary file that synchronises with the disk whenever unwritten data takes much of the free memory."""

    _waiting = 0

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _STEP):
            self._waiting += super().write(view[start : start + _STEP])
            if self._waiting >= _STEP:
                self._pace()
        return len(view)

    def sync(self) -> None:
        """Wait until all data is on disk."""
        self.flush()
        os.fdatasync(self.fileno())
        self._waiting = 0

    def _pace(self) -> None:
        headroom = process_probe().of_system()
        if headroom is not None and self._waiting > headroom.bytes * _SHARE:
            self.sync()
