"""Generates the loops over instants: one for each section, and one that schedules the sections.

A section processes `batch` input rows, and all further rows with the timestamp of the last row. Then the next section
runs, and reads all rows that the previous section has emitted (the hybrid of time splitting and heartbeats that
`docs/papers.md` 2 leaves open). A section that runs alone keeps its data in the CPU caches, and skips the instants at
which it is idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sparkext.kernels.arena.queues import QUEUE_WORDS
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.streaming.cql.code.layout import (
    AFTER,
    BEFORE_ALL,
    EPSILONS,
    GIVEN,
    NOW,
    ROW,
    STEPS,
    TIME,
    Int64Literal,
    Layout,
)
from sparkext.streaming.cql.code.shared_lines import SHARED, indent_lines, write_due_check

ROWS_AT_ONCE = 1 << 16
"""Number of output rows after which the loops return, and of rows that a section passes on in one turn."""

DONE, MORE = -1, -2
"""Results of `run`: finished, or interrupted because outputs have to be drained. Any other result is the index of a
section that exceeded its limit of instants at one timestamp."""

NEXT = BEFORE_ALL
"""Marks the timestamp bound of the sections as undetermined: the loop has to find the next bound."""

_LAST = Int64Literal(1 << 62)
"""The number of ε after a timestamp for work that waits until everything else at this timestamp is done."""
_INPUTS = "x, n, times, streams"
SECTION = f"{SHARED}, {_INPUTS}, at, until, epsilons, limit"
RUN = f"{SHARED}, {_INPUTS}, at, until, batch, limit"
"""Parameters of the generated functions."""

_FOREVER = "np.int64(0x7FFFFFFFFFFFFFFF)"


@dataclass
class SectionLines:
    """The queues and the generated lines of a section.

    `instant`: position of the last instant that it has processed. `streams`: indexes of the input streams that it
    reads, None for all. `buffers`: by name, the queues of the rows that streams emit at the current instant of this
    section; `widths`: their numbers of columns. `delays`: queues of delayed rows of its own queries. `inboxes`: queues
    of rows that other sections have emitted. `goes_to[name]`: the queues that receive the rows of an own stream at the
    end of an instant. `outputs`: own streams that are outputs of the graph.
    """

    instant: Int64Literal
    streams: Sequence[int] | None
    buffers: dict[str, Int64Literal] = field(default_factory=dict)
    widths: dict[str, Int64Literal] = field(default_factory=dict)
    delays: dict[str, Int64Literal] = field(default_factory=dict)
    inboxes: dict[str, Int64Literal] = field(default_factory=dict)
    goes_to: dict[str, list[Int64Literal]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    firing: list[str] = field(default_factory=list)
    work: list[str] = field(default_factory=list)

    def reads(self, layout: Layout, name: str, width: int) -> None:
        """Allocate the buffer and the inbox of a stream of another section."""
        self.emits(layout, name, width)
        self.inboxes[name] = layout.words(QUEUE_WORDS)

    def emits(self, layout: Layout, name: str, width: int) -> None:
        """Allocate the buffer of a stream."""
        self.buffers[name], self.widths[name] = layout.words(QUEUE_WORDS), Int64Literal(width)

    def lines(self, serial: bool) -> list[str]:
        """Return the loop over the instants of the section, up to `epsilons` ε after `until`.

        The loop ends earlier if it has passed on many rows, so that their readers can run. It returns its position
        among the input rows, the instant up to which all is processed, and whether it has exceeded the limit of
        instants at one timestamp.
        """
        now, after, steps = (f"m[{self.instant + word}]" for word in (NOW, AFTER, STEPS))
        waiting = {**self.delays, **self.inboxes}
        firing = [*self.firing]
        for queue in waiting.values():
            firing += write_due_check(queue, f"m[f + {TIME}]", f"m[f + {EPSILONS}]")
        body = [*self._next_row(serial, now), *firing]
        body += ["if t > until or (t == until and e > epsilons):", "    return at, until, epsilons, False"]
        body += self._rows_of_instant(serial, now, after, steps)
        for name, queue in waiting.items():
            due = f"m[f + {TIME}] < t or (m[f + {TIME}] == t and m[f + {EPSILONS}] <= e)"
            move_lines = [f"append(m, {self.buffers[name]}, pop(m, {queue}))", f"f = m[{queue}]"]
            body += [f"f = m[{queue}]", f"while f != 0 and ({due}):", *indent_lines(1, move_lines)]
        body += self.work
        for name, buffer in self.buffers.items():
            body += self._pass_on_rows(name, buffer)
        if self._has_rows:
            body.append("at = stop")
        prologue = ["rows = times.size", "passed = np.int64(0)", f"while passed < {ROWS_AT_ONCE}:"]
        return [*prologue, *indent_lines(1, body), f"return at, {now}, {after}, False"]

    @property
    def _has_rows(self) -> bool:
        return self.streams is None or len(self.streams) > 0

    def _next_row(self, serial: bool, now: str) -> list[str]:
        """Return the lines that propose the instant of the next input row as the next instant."""
        lines = [f"t, e = {_FOREVER}, np.int64(0)"]
        if not self._has_rows:
            return lines
        if self.streams is not None:
            is_other = " and ".join(f"streams[at] != {number}" for number in self.streams)
            lines += [f"while at < rows and {is_other}:", "    at += 1"]
        lines += ["if at < rows:", "    t = times[at]"]
        if serial:
            lines += [f"    if t == {now}:", f"        e = {_LAST}"]
        return lines

    def _rows_of_instant(self, serial: bool, now: str, after: str, steps: str) -> list[str]:
        """Return the lines that select the input rows of this instant, from `at` to `stop`, and count instants."""
        lines = []
        no_row_test = ""
        if self._has_rows:
            no_row_test = " and stop == at"
            instant_test = f" and (e == 0 or e == {_LAST})" if serial else " and e == 0"
            lines += ["stop = at", f"if at < rows and times[at] == t{instant_test}:", "    stop += 1"]
            if serial:
                lines.append(f"    e = {after} + 1 if t == {now} else np.int64(0)")
            else:
                lines += ["    while stop < rows and times[stop] == t:", "        stop += 1"]
        exceeded = [f"if {steps} > limit:", "    return at, t, e, True"]
        lines += [f"if t == {now}{no_row_test}:", f"    {steps} += 1", *indent_lines(1, exceeded)]
        return [*lines, "else:", f"    {steps} = 1", f"{now} = t", f"{after} = e"]

    def _pass_on_rows(self, name: str, buffer: Int64Literal) -> list[str]:
        """Return the lines that send the rows of a stream to their destinations when an instant ends."""
        queues = self.goes_to.get(name, ())
        if not queues:
            return [f"release_all(m, {buffer}, {Int64Literal(ROW + 1 + self.widths[name])})"]
        *copy_queues, move_queue = queues
        counts = [f"passed += m[{buffer + 2}]"]
        if name in self.outputs:
            counts.append(f"m[{GIVEN}] += m[{buffer + 2}]")
        copies = [f"copy_all(m, {buffer}, {queue}, {self.widths[name]})" for queue in copy_queues]
        return [*counts, *copies, f"move_all(m, {buffer}, {move_queue})"]


PLACE_WORDS = 3
"""Words per section: its position among the input rows, and the instant up to which all is processed."""


def create_positions(sections: int) -> Int64Array:
    """Return the initial `at` of `run`.

    It has `PLACE_WORDS` words for each section, then the timestamp bound of the sections, at first `NEXT`, and the
    position of the first input row after the bound.
    """
    return np.array([*[0, BEFORE_ALL, 0] * sections, NEXT, 0], dtype=np.int64)


def write_run_loop(sections: int) -> list[str]:
    """Return the loop that schedules the sections until all have reached `until`.

    The last section that lags behind its predecessor runs first. Therefore at most the rows that the predecessor passes
    on in one turn wait for it. `at`: see `create_positions`. `batch`: number of input rows per turn. A turn also
    includes all further rows with the timestamp of its last row.
    """
    bound, stop = f"at[{PLACE_WORDS * sections}]", f"at[{PLACE_WORDS * sections + 1}]"
    bound_lines = [f"{bound} = until", f"{stop} += batch", f"if {stop} < rows:"]
    bound_lines += [f"    while {stop} < rows and times[{stop}] == times[{stop} - 1]:", f"        {stop} += 1"]
    bound_lines += [f"    if {stop} < rows:", f"        {bound} = times[{stop} - 1]"]
    body = [f"if {bound} == {Int64Literal(NEXT)}:", *indent_lines(1, bound_lines)]
    for number in reversed(range(sections)):
        position, time, epsilons = (f"at[{PLACE_WORDS * number + word}]" for word in range(PLACE_WORDS))
        limits = (f"at[{PLACE_WORDS * (number - 1) + word}]" for word in (1, 2)) if number else (bound, f"{_LAST}")
        until, most_epsilons = limits
        turn = f"{position}, {time}, {epsilons}, exceeded = section{number}"
        is_behind = f"{time} < {until} or ({time} == {until} and {epsilons} < {most_epsilons})"
        body.append(f"{'if' if number == sections - 1 else 'elif'} {is_behind}:")
        body += [f"    {turn}({SHARED}, {_INPUTS}, {position}, {until}, {most_epsilons}, limit)", "    if exceeded:"]
        body.append(f"        return {number}")
    body += [f"elif {bound} == until:", f"    return {DONE}", "else:", f"    {bound} = {Int64Literal(NEXT)}"]
    return ["rows = times.size", f"while m[{GIVEN}] < {ROWS_AT_ONCE}:", *indent_lines(1, body), f"return {MORE}"]
