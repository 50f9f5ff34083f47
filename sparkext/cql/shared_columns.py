"""Gives the columns of several streams places in one table: those of a type share one, as a row is of one stream only.

Each column of a table costs a conversion of each row when it gets to Python, whether it is null or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

Kind = TypeVar("Kind")


class SharedColumns(Generic[Kind]):
    """`kinds`: those of the columns of the table. `places[stream]`: where the columns of a stream are."""

    def __init__(self, streams: Mapping[str, Sequence[Kind]]) -> None:
        """Give each column the first place of its type that its stream has not taken."""
        self.kinds: list[Kind] = []
        self.places: dict[str, tuple[int, ...]] = {}
        for name, kinds in streams.items():
            taken: list[int] = []
            for kind in kinds:
                free = (at for at, there in enumerate(self.kinds) if there == kind and at not in taken)
                place = next(free, len(self.kinds))
                if place == len(self.kinds):
                    self.kinds.append(kind)
                taken.append(place)
            self.places[name] = tuple(taken)
