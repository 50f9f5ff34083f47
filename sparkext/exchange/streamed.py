"""Rows that stream to slots while these join them: what both ends know of it, and the files beside their tasks.

A worker and its task in the JVM share the folder of local files. The task brings the board of a run to where a worker
that routes rows reads it, and takes from there what workers tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sparkext.plans.board import Board, Interval, Told
from sparkext.storage.container import private_file
from sparkext.storage.local_folder import beside_task

ROUTED = pa.schema([("slot", pa.int32()), ("line", pa.int32()), ("cell", pa.binary())])
"""What a task that routes rows emits: cells of one line each."""

HOME = -1
"""In place of a line: all whose home a slot is."""


@dataclass(frozen=True)
class Streamed:
    """How many lines and slots there are, and the name of the run that its files have."""

    lines: int
    slots: int
    run: str

    def group(self, line: int, slot: int) -> int:
        """Return what a slot joins the rows of a line with: the build rows of all lines at home there, or of this."""
        return HOME if line % self.slots == slot else line


class TaskFiles:
    """The files of this task beside its run."""

    def __init__(self, run: str) -> None:
        """Begin without having seen the board."""
        self._run = run
        self._seen = 0

    def board(self) -> Board | None:
        """Return the board, unless it is as it was when this was last asked."""
        path = self._path("board")
        try:
            changed = path.stat().st_mtime_ns
            if changed == self._seen:
                return None
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        self._seen = changed
        return Board.from_json(text)

    def propose(self, interval: Interval) -> None:
        """Leave a proposal."""
        self._write("proposal", interval.to_json())

    def tell(self, told: Told) -> None:
        """Leave what was done for each line."""
        self._write("told", told.to_json())

    def _write(self, name: str, text: str) -> None:
        with private_file(self._path(name)) as stream:
            stream.write(text.encode())

    def _path(self, name: str) -> Path:
        path = beside_task(self._run, name)
        assert path is not None, "called in a task"
        return path
