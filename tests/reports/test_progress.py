"""Progress bars: who sees them, their counts, and that nothing depends on them."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sparkext.reports import progress as module
from sparkext.reports.progress import CountingStream, count_passing_rows, progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace stderr by a terminal, and draw bars at once instead of after two seconds."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(module, "_DELAY_SECONDS", 0.0)
    return shown


def count_to_three(**options: Any) -> None:
    with progress("counting", "rows", 3, **options) as advance:
        for _ in range(3):
            advance(1)


def test_a_terminal_shows_a_bar_and_then_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    count_to_three()
    assert "counting" in terminal.getvalue() and "0.00/3.00" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r")
    assert not [thread for thread in threading.enumerate() if thread.name == "sparkext-progress"]


def test_bytes_have_binary_units(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with progress("writing", "B", 4 << 20) as advance:
        advance(2 << 20)
        advance(2 << 20)
    assert "0.00/4.00M" in terminal.getvalue()


def test_a_short_step_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(module, "_DELAY_SECONDS", 1000.0)
    count_to_three()
    assert terminal.getvalue() == ""


def test_a_step_that_tells_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar redraws itself without updates."""
    on_terminal(monkeypatch)
    monkeypatch.setattr(module, "_REDRAW_SECONDS", 0.001)
    drawn = threading.Event()

    class Drawn:
        def __init__(self, **options: Any) -> None:
            self.counted = 0

        def update(self, count: int) -> None:
            self.counted += count
            drawn.set()

        def close(self) -> None:
            assert self.counted == 0

    monkeypatch.setitem(sys.modules, "tqdm.auto", SimpleNamespace(tqdm=Drawn))
    with progress("waiting", "rows"):
        assert drawn.wait(60)


def test_neither_a_file_nor_a_switched_off_bar_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    count_to_three(shown=False)
    assert terminal.getvalue() == ""
    written = io.StringIO()
    for stderr in (written, None):
        monkeypatch.setattr(sys, "stderr", stderr)
        count_to_three()
    assert written.getvalue() == ""


def test_a_notebook_shows_a_bar_though_it_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    shell = SimpleNamespace(config={})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    count_to_three()
    assert written.getvalue() == ""  # IPython writes to a file instead of a terminal
    shell.config["IPKernelApp"] = {}
    count_to_three()
    assert "counting" in written.getvalue()


def test_without_tqdm_there_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    count_to_three()
    assert terminal.getvalue() == ""


class Broken:
    """A bar whose methods all fail."""

    def __init__(self, **options: Any) -> None:
        self.calls: list[str] = []

    def update(self, count: int) -> None:
        raise RuntimeError("broken")

    def close(self) -> None:
        raise RuntimeError("broken")


def test_a_bar_that_fails_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)

    def refuse(**options: Any) -> None:
        raise RuntimeError("no bars today")

    for bar in (Broken, refuse):
        monkeypatch.setitem(sys.modules, "tqdm.auto", SimpleNamespace(tqdm=bar))
        done = []
        with progress("counting", "rows") as advance:
            advance(1)
            done.append(True)
        assert done


def test_an_error_of_the_step_is_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    with pytest.raises(KeyError), progress("failing", "rows") as advance:
        advance(1)
        raise KeyError
    assert not [thread for thread in threading.enumerate() if thread.name == "sparkext-progress"]


def test_what_is_counted() -> None:
    told: list[int] = []
    batches = [pa.record_batch([pa.array(range(rows))], names=["a"]) for rows in (3, 0, 5)]
    assert list(count_passing_rows(iter(batches), told.append)) == batches
    assert told == [3, 0, 5]
    told.clear()
    sink = io.BytesIO()
    stream = CountingStream(sink, told.append)
    stream.write(b"abc")
    stream.write(memoryview(bytearray(8)).cast("q"))
    stream.write(pa.py_buffer(b"12"))
    assert told == [3, 8, 2] and sink.getvalue() == b"abc" + bytes(8) + b"12"


@pytest.fixture(autouse=True)
def _no_threads_are_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "sparkext-progress"]
