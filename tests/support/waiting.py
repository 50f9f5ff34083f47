"""Waits for a condition that another thread or process fulfils."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(holds: Callable[[], object], expected: str | Callable[[], object], seconds: float = 60) -> None:
    """Wait until the condition holds; after this time, fail with its description, which may be computed then."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, (
            f"still not after {seconds:g} s: {expected() if callable(expected) else expected}"
        )
        time.sleep(0.05)
