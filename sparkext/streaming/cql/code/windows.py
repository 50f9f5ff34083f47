"""Generates the code by which rows enter and leave windows."""

from __future__ import annotations

from sparkext.kernels.arena.queues import QUEUE_WORDS
from sparkext.kernels.arena.words import DOUBLE_ORDER
from sparkext.streaming.cql.code.layout import EPSILONS, ROW, TIME, Int64Literal, Layout, order_of
from sparkext.streaming.cql.code.shared_lines import SHARED, indent_lines, write_due_check, write_pop_loop
from sparkext.streaming.cql.language.queries import Input


class WindowLines:
    """The lines by which rows enter and leave a window, and the lines that find its next instant."""

    def __init__(self, layout: Layout, read: Input, into: str) -> None:
        """Bind it to `into`, the function that takes inserted and deleted rows."""
        assert read.window is not None, "streams have one"
        self._layout, self._read, self._into = layout, read, into
        self._window, self._width = read.window, Int64Literal(len(read.columns))
        self._queue, self._waiting = layout.words(QUEUE_WORDS), layout.words(QUEUE_WORDS)
        self.firing: list[str] = []
        self.expire: list[str] = []
        if read.window.kind in ("now", "range"):
            (self._write_slides if read.window.slide else self._write_expiry)()

    def _write_insertion(self, row: str) -> str:
        return f"{self._into}({SHARED}, {Int64Literal(1)}, {row})"

    def _write_deletion(self) -> list[str]:
        return [f"{self._into}({SHARED}, {Int64Literal(-1)}, r + {ROW})", f"release_queued(m, r, {self._width})"]

    def add(self, row: str) -> list[str]:
        """Return the lines that add a row."""
        record, queue, waiting = f"queued(m, t, e, {row}, {self._width})", self._queue, self._waiting
        slide = self._window.slide
        if self._window.kind == "unbounded":
            return [self._write_insertion(row)]
        if self._window.kind == "rows":
            return self._add_counted(row, record)
        if not slide:
            return [f"append(m, {queue}, {record})", self._write_insertion(row)]
        insertion_lines = [
            f"if t % {slide} == 0:",
            f"    append(m, {queue}, {record})",
            f"    {self._write_insertion(row)}",
        ]
        return [*insertion_lines, "else:", f"    append(m, {waiting}, {record})"]

    def _add_counted(self, row: str, record: str) -> list[str]:
        """Return the lines that add a row to a ROWS window, and remove the oldest rows that exceed it."""
        queue, waiting = self._queue, self._waiting
        amount, slide = self._window.amount, self._window.slide
        if not slide:
            lines, part = self._find_part(row)
            deletion_lines = [f"if m[q + 2] == {amount}:", *indent_lines(1, ["r = pop(m, q)", *self._write_deletion()])]
            return [*lines, f"q = {part}", *deletion_lines, f"append(m, q, {record})", self._write_insertion(row)]
        exceeds = f"m[{queue + 2}] + m[{waiting + 2}] > {amount}"
        deletion_lines = [
            f"while m[{queue}] != 0 and {exceeds}:",
            *indent_lines(1, [f"r = pop(m, {queue})", *self._write_deletion()]),
        ]
        skip_lines = [f"while {exceeds}:", f"    release_queued(m, pop(m, {waiting}), {self._width})"]
        insertion_lines = [
            f"r = m[{waiting}]",
            "while r != 0:",
            f"    {self._write_insertion(f'r + {ROW}')}",
            "    r = m[r]",
        ]
        slide_lines = [*deletion_lines, *skip_lines, *insertion_lines, f"move_all(m, {waiting}, {queue})"]
        return [f"append(m, {waiting}, {record})", f"if m[{waiting + 2}] == {slide}:", *indent_lines(1, slide_lines)]

    def _find_part(self, row: str) -> tuple[list[str], str]:
        """Return the lines that find the queue of a row's PARTITION BY group, and the name of this queue."""
        columns = self._window.partition
        if not columns:
            return [], f"{self._queue}"
        key, table = self._layout.words(1 + len(columns)), self._layout.table()
        bits = " | ".join(f"((m[{row}] >> {column}) & 1) << {k}" for k, column in enumerate(columns))
        lines = [f"m[{key}] = {bits}"]
        for k, column in enumerate(columns):
            word = f"m[{row} + {1 + column}]"
            is_double = order_of(self._read.columns[column].type) == DOUBLE_ORDER
            lines.append(f"m[{key + 1 + k}] = {f'normal({word})' if is_double else word}")
        return lines, f"part_of(m, {table}, {key}, {Int64Literal(len(columns))})"

    def _write_expiry(self) -> None:
        """Write windows without a slide: rows leave when their time has passed."""
        end, epsilons = f"m[f + {TIME}] + {self._window.amount}", f"m[f + {EPSILONS}]"
        self.firing = write_due_check(self._queue, end, f"{epsilons} + 1")
        self.expire = write_pop_loop(
            self._queue, f"{end} > t or ({end} == t and {epsilons} >= e)", self._write_deletion()
        )

    def _write_slides(self) -> None:
        """Write windows with a slide: rows enter and leave at multiples of the slide."""
        amount, slide = self._window.amount, self._window.slide
        begin, end = f"-(-m[f + {TIME}] // {slide}) * {slide}", f"((m[f + {TIME}] + {amount}) // {slide} + 1) * {slide}"
        self.firing = [
            *write_due_check(self._waiting, begin, "np.int64(0)"),
            *write_due_check(self._queue, end, "np.int64(0)"),
        ]
        is_over = f"if m[r + {TIME}] < t // {slide} * {slide} - {amount}:"
        insertion_lines = [f"    append(m, {self._queue}, r)", f"    {self._write_insertion(f'r + {ROW}')}"]
        lines = [is_over, f"    release_queued(m, r, {self._width})", "else:", *insertion_lines]
        deletion_loop = write_pop_loop(self._queue, f"{end} > t", self._write_deletion())
        self.expire = [*deletion_loop, *write_pop_loop(self._waiting, f"{begin} > t", lines)]
