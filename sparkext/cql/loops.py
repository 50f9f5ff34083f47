"""Writes the loops over instants: one for each section, and one that gives each its turn.

A section goes on for `batch` given rows, and all of the last one's timestamp, before the next one does, which then
finds all that the first has emitted (the hybrid of time splitting and heartbeats that `docs/papers.md` 2 leaves open).
A section that runs alone stays in the caches, and skips the instants at which it has nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sparkext.cql.layout import AFTER, BEFORE_ALL, EPSILONS, GIVEN, NOW, ROW, STEPS, TIME, Layout, Literal
from sparkext.cql.lines import SHARED, fires, indented
from sparkext.kernels.arena.queues import QUEUE_WORDS
from sparkext.kernels.buffers import Int64Array

ROWS_AT_ONCE = 1 << 16
"""Rows of outputs after which the loops return, and rows that a section passes on in one turn."""

DONE, MORE = -1, -2
"""What `run` returns at the end, or when outputs have to be taken away first; else the number of a section that does
not come to rest."""

NEXT = BEFORE_ALL
"""The timestamp to which sections go on, where the next has to be found."""

_LAST = Literal(1 << 62)
"""How many ε behind a timestamp what waits for all else that happens at it does so."""
_GIVEN = "x, n, times, streams"
SECTION = f"{SHARED}, {_GIVEN}, at, until, epsilons, limit"
RUN = f"{SHARED}, {_GIVEN}, at, until, batch, limit"
"""Parameters of the functions."""

_FOREVER = "np.int64(0x7FFFFFFFFFFFFFFF)"


@dataclass
class SectionLines:
    """What a section does.

    `instant`: the words of the last instant that it has been at. `streams`: numbers of the given ones that it reads,
    None for all that there are. `buffers`: what queries emit at an instant, by name, as this section sees it, and
    `widths` of how many columns that is. `delays`: what own queries emit later. `inboxes`: what those of other
    sections have emitted. `goes_to[name]`: the queues where the rows of an own stream go when the instant ends.
    `outputs`: own streams that are emitted.
    """

    instant: Literal
    streams: Sequence[int] | None
    buffers: dict[str, Literal] = field(default_factory=dict)
    widths: dict[str, Literal] = field(default_factory=dict)
    delays: dict[str, Literal] = field(default_factory=dict)
    inboxes: dict[str, Literal] = field(default_factory=dict)
    goes_to: dict[str, list[Literal]] = field(default_factory=dict)
    outputs: set[str] = field(default_factory=set)
    firing: list[str] = field(default_factory=list)
    work: list[str] = field(default_factory=list)

    def reads(self, layout: Layout, name: str, width: int) -> None:
        """Give a stream of another section a place."""
        self.emits(layout, name, width)
        self.inboxes[name] = layout.words(QUEUE_WORDS)

    def emits(self, layout: Layout, name: str, width: int) -> None:
        """Give a stream of this section a place."""
        self.buffers[name], self.widths[name] = layout.words(QUEUE_WORDS), Literal(width)

    def lines(self, serial: bool) -> list[str]:
        """Return the loop over the instants of the section up to `until` and `epsilons` behind it.

        It ends before that when many rows have been passed on: who reads them has its turn then.

        It returns its place among the given rows, the instant up to which all is done, and whether it has been at one
        timestamp for too long.
        """
        now, after, steps = (f"m[{self.instant + word}]" for word in (NOW, AFTER, STEPS))
        waiting = {**self.delays, **self.inboxes}
        firing = [*self.firing]
        for queue in waiting.values():
            firing += fires(queue, f"m[f + {TIME}]", f"m[f + {EPSILONS}]")
        body = [*self._next_row(serial, now), *firing]
        body += ["if t > until or (t == until and e > epsilons):", "    return at, until, epsilons, False"]
        body += self._rows_of_instant(serial, now, after, steps)
        for name, queue in waiting.items():
            due = f"m[f + {TIME}] < t or (m[f + {TIME}] == t and m[f + {EPSILONS}] <= e)"
            moved = [f"append(m, {self.buffers[name]}, pop(m, {queue}))", f"f = m[{queue}]"]
            body += [f"f = m[{queue}]", f"while f != 0 and ({due}):", *indented(1, moved)]
        body += self.work
        for name, buffer in self.buffers.items():
            body += self._passed_on(name, buffer)
        if self._has_rows:
            body.append("at = stop")
        head = ["rows = times.size", "passed = np.int64(0)", f"while passed < {ROWS_AT_ONCE}:"]
        return [*head, *indented(1, body), f"return at, {now}, {after}, False"]

    @property
    def _has_rows(self) -> bool:
        return self.streams is None or len(self.streams) > 0

    def _next_row(self, serial: bool, now: str) -> list[str]:
        """Return how the next instant may be that of a given row."""
        lines = [f"t, e = {_FOREVER}, np.int64(0)"]
        if not self._has_rows:
            return lines
        if self.streams is not None:
            others = " and ".join(f"streams[at] != {number}" for number in self.streams)
            lines += [f"while at < rows and {others}:", "    at += 1"]
        lines += ["if at < rows:", "    t = times[at]"]
        if serial:
            lines += [f"    if t == {now}:", f"        e = {_LAST}"]
        return lines

    def _rows_of_instant(self, serial: bool, now: str, after: str, steps: str) -> list[str]:
        """Return which given rows are of this instant, those from `at` to `stop`, and how instants are counted."""
        lines = []
        new = ""
        if self._has_rows:
            new = " and stop == at"
            own = f" and (e == 0 or e == {_LAST})" if serial else " and e == 0"
            lines += ["stop = at", f"if at < rows and times[at] == t{own}:", "    stop += 1"]
            if serial:
                lines.append(f"    e = {after} + 1 if t == {now} else np.int64(0)")
            else:
                lines += ["    while stop < rows and times[stop] == t:", "        stop += 1"]
        exceeded = [f"if {steps} > limit:", "    return at, t, e, True"]
        lines += [f"if t == {now}{new}:", f"    {steps} += 1", *indented(1, exceeded)]
        return [*lines, "else:", f"    {steps} = 1", f"{now} = t", f"{after} = e"]

    def _passed_on(self, name: str, buffer: Literal) -> list[str]:
        """Return where the rows of a stream go when an instant ends."""
        queues = self.goes_to.get(name, ())
        if not queues:
            return [f"release_all(m, {buffer}, {Literal(ROW + 1 + self.widths[name])})"]
        *copied, moved = queues
        counts = [f"passed += m[{buffer + 2}]"]
        if name in self.outputs:
            counts.append(f"m[{GIVEN}] += m[{buffer + 2}]")
        copies = [f"copy_all(m, {buffer}, {queue}, {self.widths[name]})" for queue in copied]
        return [*counts, *copies, f"move_all(m, {buffer}, {moved})"]


PLACE_WORDS = 3
"""Of each section: its place among the given rows, and the instant up to which all is done."""


def places(sections: int) -> Int64Array:
    """Return where sections are before given rows: of each its `PLACE_WORDS`; then the timestamp to which they go on,
    `NEXT` at first, and the first given row behind it.
    """
    return np.array([*[0, BEFORE_ALL, 0] * sections, NEXT, 0], dtype=np.int64)


def run_lines(sections: int) -> list[str]:
    """Return the loop that gives each of so many sections its turn, until all have got to `until`.

    The last one that is behind goes on first, so that no more waits for it than what the one before it passes on in one
    turn. `at`: see `places`. `batch`: the given rows to go on for, and all of the last one's timestamp.
    """
    bound, stop = f"at[{PLACE_WORDS * sections}]", f"at[{PLACE_WORDS * sections + 1}]"
    found = [f"{bound} = until", f"{stop} += batch", f"if {stop} < rows:"]
    found += [f"    while {stop} < rows and times[{stop}] == times[{stop} - 1]:", f"        {stop} += 1"]
    found += [f"    if {stop} < rows:", f"        {bound} = times[{stop} - 1]"]
    body = [f"if {bound} == {Literal(NEXT)}:", *indented(1, found)]
    for number in reversed(range(sections)):
        place, time, epsilons = (f"at[{PLACE_WORDS * number + word}]" for word in range(PLACE_WORDS))
        before = (f"at[{PLACE_WORDS * (number - 1) + word}]" for word in (1, 2)) if number else (bound, f"{_LAST}")
        until, most = before
        turn = f"{place}, {time}, {epsilons}, exceeded = section{number}"
        is_behind = f"{time} < {until} or ({time} == {until} and {epsilons} < {most})"
        body.append(f"{'if' if number == sections - 1 else 'elif'} {is_behind}:")
        body += [f"    {turn}({SHARED}, {_GIVEN}, {place}, {until}, {most}, limit)", "    if exceeded:"]
        body.append(f"        return {number}")
    body += [f"elif {bound} == until:", f"    return {DONE}", "else:", f"    {bound} = {Literal(NEXT)}"]
    return ["rows = times.size", f"while m[{GIVEN}] < {ROWS_AT_ONCE}:", *indented(1, body), f"return {MORE}"]
