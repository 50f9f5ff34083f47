"""Maps the columns of several streams to shared columns of one table: each row belongs to one stream only.

Each column of a table costs one conversion per row when Python receives the rows, even for nulls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

Kind = TypeVar("Kind")


class SharedColumns(Generic[Kind]):
    """`kinds`: the types of the table's columns. `places[stream]`: the table's columns for the columns of a stream."""

    def __init__(self, streams: Mapping[str, Sequence[Kind]]) -> None:
        """Assign to each column the first table column of its type that its stream does not use yet."""
        self.kinds: list[Kind] = []
        self.places: dict[str, tuple[int, ...]] = {}
        for name, kinds in streams.items():
            used: list[int] = []
            for kind in kinds:
                free = (
                    index for index, shared_kind in enumerate(self.kinds) if shared_kind == kind and index not in used
                )
                position = next(free, len(self.kinds))
                if position == len(self.kinds):
                    self.kinds.append(kind)
                used.append(position)
            self.places[name] = tuple(used)
