"""Routing table of an exchange: the partitions that receive the rows of each bucket.

A partition is a `slot` in the code, a bucket a `line` ("hash line" in paper 5). Every bucket has a home partition: its
id modulo the number of partitions. Only buckets elsewhere have an entry, which is removed when they return home. So a
table of many buckets and partitions is as small as the number of moved buckets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

Slots = tuple[int, ...]


@dataclass(frozen=True)
class RoutingTable:
    """The partitions of `lines` buckets. Buckets and the `slots` partitions are numbered from 0.

    `moved` has the partitions of each bucket that is not at home. If a bucket has several partitions, each of them has
    all of its build rows, and each of its probe rows goes to any one of them. `version` increases by one with each
    table that is derived from another.
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
        """Return the home partition of a bucket."""
        return line % self.slots

    def slots_of(self, line: int) -> Slots:
        """Return the partitions of a bucket. Each of them has its build rows."""
        return self.moved.get(line) or (self.home(line),)

    def lines_of(self, slot: int) -> Iterator[int]:
        """Yield the buckets that have rows in a partition, in no order."""
        for line in range(slot, self.lines, self.slots):
            if line not in self.moved:
                yield line
        for line, slots in self.moved.items():
            if slot in slots:
                yield line

    def followed(self, changes: Mapping[int, Slots]) -> RoutingTable:
        """Return the next table, in which these buckets have other partitions."""
        moved = {**self.moved, **changes}
        away = {line: slots for line, slots in moved.items() if slots != (self.home(line),)}
        return replace(self, moved=away, version=self.version + 1)

    def new_slots(self, before: RoutingTable) -> dict[int, Slots]:
        """Return, by bucket, the partitions that it has in this table but not in `before`.

        The build rows of the bucket have to be copied to these partitions.
        """
        added = {}
        for line in {*self.moved, *before.moved}:
            had = before.slots_of(line)
            slots = tuple(slot for slot in self.slots_of(line) if slot not in had)
            if slots:
                added[line] = slots
        return added
