"""Which slots the rows of each hash line go to: the table that an exchange routes by.

Every line has a home, line number modulo slots. Only lines that are elsewhere have an entry, which goes when they come
home: tables of many lines over many slots stay as small as what was moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

Slots = tuple[int, ...]


@dataclass(frozen=True)
class RoutingTable:
    """Where the rows of `lines` lines go, which are numbered from 0, as are the `slots` slots.

    `moved` has the slots of each line that is not at home. Of one with several, every slot has all build rows, and
    probe rows go to any one of them. `version` is one higher in each table that follows another.
    """

    lines: int
    slots: int
    moved: Mapping[int, Slots] = field(default_factory=dict)
    version: int = 0

    def __post_init__(self) -> None:
        if self.lines < 1 or self.slots < 1:
            raise ValueError(f"a routing table needs a line and a slot, not {self.lines} and {self.slots}")
        for line, slots in self.moved.items():
            known = 0 <= line < self.lines and all(0 <= slot < self.slots for slot in slots)
            if not slots or len({*slots}) < len(slots) or not known:
                raise ValueError(f"line {line} of {self.lines} cannot go to slots {slots} of {self.slots}")

    def home(self, line: int) -> int:
        """Return the slot of a line that was never moved."""
        return line % self.slots

    def slots_of(self, line: int) -> Slots:
        """Return the slots of a line, in which its build rows are."""
        return self.moved.get(line) or (self.home(line),)

    def lines_of(self, slot: int) -> Iterator[int]:
        """Yield the lines that have rows in a slot, in no order."""
        for line in range(slot, self.lines, self.slots):
            if line not in self.moved:
                yield line
        for line, slots in self.moved.items():
            if slot in slots:
                yield line

    def followed(self, changes: Mapping[int, Slots]) -> RoutingTable:
        """Return the next table, in which these lines have other slots."""
        moved = {**self.moved, **changes}
        away = {line: slots for line, slots in moved.items() if slots != (self.home(line),)}
        return replace(self, moved=away, version=self.version + 1)

    def new_slots(self, before: RoutingTable) -> dict[int, Slots]:
        """Return the slots that lines have in this table and had not `before`: to these their build rows are copied."""
        added = {}
        for line in {*self.moved, *before.moved}:
            had = before.slots_of(line)
            slots = tuple(slot for slot in self.slots_of(line) if slot not in had)
            if slots:
                added[line] = slots
        return added
