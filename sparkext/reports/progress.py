"""Progress bars for long steps of the driver itself, drawn by tqdm if it is installed.

A bar is shown on a terminal or in a notebook, after two seconds, and removed when the step is done. If a bar fails, the
step continues without it. Spark's own progress bar, if it is switched on, shows Spark jobs.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_DELAY_SECONDS = 2.0
_REDRAW_SECONDS = 0.25

Advance = Callable[[int], None]
"""Adds to the number of units that are done."""


@contextmanager
def progress(step: str, unit: str, total: int | None = None, *, shown: bool = True) -> Iterator[Advance]:
    """Show the progress of `step`, in units of `unit` (`B` for bytes), relative to `total` if that is known."""
    bar = _Bar.begun(step, unit, total) if shown and (is_in_notebook() or is_on_terminal()) else None
    if bar is None:
        yield lambda count: None
        return
    try:
        yield bar.advance
    finally:
        bar.close()


def count_passing_rows(batches: Iterable[pa.RecordBatch], advance: Advance) -> Iterator[pa.RecordBatch]:
    """Pass batches on and count their rows."""
    for batch in batches:
        yield batch
        advance(batch.num_rows)


class CountingStream:
    """A stream that counts the bytes written through it."""

    def __init__(self, stream: IO[bytes], advance: Advance) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._advance = advance

    def write(self, data: Any) -> int:
        """Write `data`, and add its bytes to the progress."""
        written = self._stream.write(data)
        self._advance(memoryview(data).nbytes)
        return written


def is_on_terminal() -> bool:
    """Return whether stderr is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def is_in_notebook() -> bool:
    """Return whether this is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


class _Bar:
    """A bar that redraws itself, because a step may report no progress for long."""

    @classmethod
    def begun(cls, step: str, unit: str, total: int | None) -> _Bar | None:
        """Return a new bar, None if tqdm is missing or fails."""
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm warns in notebooks without widgets, where it draws a text bar
            from tqdm.auto import tqdm

            options = {"unit_scale": True, "unit_divisor": 1024 if unit == "B" else 1000, "leave": False}
            unit = unit if unit == "B" else f" {unit}"
            # miniters=0: every call may redraw the bar, even if it adds nothing.
            return cls(tqdm(desc=step, unit=unit, total=total, delay=_DELAY_SECONDS, miniters=0, **options))
        return None

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self._redrawing = threading.Thread(target=self._redraw, name="sparkext-progress", daemon=True)
        self._redrawing.start()

    def advance(self, count: int) -> None:
        """Add to the number of units that are done."""
        with suppress(Exception), self._turn:
            self._bar.update(count)

    def close(self) -> None:
        """Remove the bar."""
        self._ended.set()
        self._redrawing.join()
        with suppress(Exception):
            self._bar.close()

    def _redraw(self) -> None:
        while not self._ended.wait(_REDRAW_SECONDS):
            self.advance(0)
