"""Progress bars for what the driver itself does at length, drawn by tqdm if it is installed.

They are for someone who waits: shown where stderr is a terminal or in a notebook, from the third second on, and gone
when the step is done. Whatever goes wrong with a bar, the step goes on without it. What runs as a Spark job is shown by
Spark's own bar where that is switched on.
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
"""Told how many more are done."""


@contextmanager
def progress(step: str, unit: str, total: int | None = None, *, shown: bool = True) -> Iterator[Advance]:
    """Show how far `step` is, in units of `unit` (`B` for bytes), out of `total` if that is known."""
    bar = _Bar.begun(step, unit, total) if shown and (in_notebook() or on_terminal()) else None
    if bar is None:
        yield lambda count: None
        return
    try:
        yield bar.advance
    finally:
        bar.close()


def counted_rows(batches: Iterable[pa.RecordBatch], advance: Advance) -> Iterator[pa.RecordBatch]:
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
        """Write, and count."""
        written = self._stream.write(data)
        self._advance(memoryview(data).nbytes)
        return written


def on_terminal() -> bool:
    """Return whether someone sees what is written to stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


def in_notebook() -> bool:
    """Return whether this is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config


class _Bar:
    """A bar that redraws itself, as a step may tell nothing for long."""

    @classmethod
    def begun(cls, step: str, unit: str, total: int | None) -> _Bar | None:
        """Begin a bar; None if there is no tqdm, or it does not work here."""
        with suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a notebook without widgets, where the bar is text
            from tqdm.auto import tqdm

            look = {"unit_scale": True, "unit_divisor": 1024 if unit == "B" else 1000, "leave": False}
            unit = unit if unit == "B" else f" {unit}"
            # miniters: every call may draw, also one that adds nothing.
            return cls(tqdm(desc=step, unit=unit, total=total, delay=_DELAY_SECONDS, miniters=0, **look))
        return None

    def __init__(self, drawn: Any) -> None:
        self._drawn = drawn
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self._redrawing = threading.Thread(target=self._redraw, name="sparkext-progress", daemon=True)
        self._redrawing.start()

    def advance(self, count: int) -> None:
        """Add to what is done."""
        with suppress(Exception), self._turn:
            self._drawn.update(count)

    def close(self) -> None:
        """Take the bar away."""
        self._ended.set()
        self._redrawing.join()
        with suppress(Exception):
            self._drawn.close()

    def _redraw(self) -> None:
        while not self._ended.wait(_REDRAW_SECONDS):
            self.advance(0)
