"""Protocols of indexes: arrays that can be mapped from a file, and the look-up of equal keys."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from sparkext.kernels.columns.row_ids import RowIds
from sparkext.kernels.indexes.matches import Matches
from sparkext.kernels.keys.normalised import NormalisedKeys
from sparkext.kernels.runtime.jit import AnyArray, freeze


class StoredIndex(Protocol):
    """An immutable index over a build side that can be stored in a file.

    `arrays` and `attributes` are its whole state: they can be written to a file, mapped back read-only and passed to
    `from_arrays` by any number of processes.
    """

    kind: ClassVar[str]

    @property
    def arrays(self) -> dict[str, AnyArray]:
        """The flat arrays of the index, by name."""
        ...

    @property
    def attributes(self) -> dict[str, int]:
        """The scalars of the index, by name."""
        ...

    @classmethod
    def from_arrays(cls, arrays: dict[str, AnyArray], attributes: dict[str, int]) -> Any:
        """Rebuild the index around arrays that may be mapped read-only."""
        ...

    @property
    def rows(self) -> RowIds | None:
        """Build rows, key by key; None if every key has one row, or if all build rows are in the order of keys."""
        ...

    @property
    def distinct(self) -> int:
        """The number of distinct keys."""
        ...


class JoinIndex(StoredIndex, Protocol):
    """An index that finds the build rows with equal keys."""

    @property
    def starts(self) -> RowIds | None:
        """The position in `rows` of each key's first row, ascending, and the end of the last key's rows.

        None if every key has one row. There may be additional, empty ranges without a key.
        """
        ...

    def lookup(self, keys: NormalisedKeys) -> Matches:
        """Return the match range of every probe key; a key that is not valid by `keys.valid` matches nothing."""
        ...


def index_bytes(index: StoredIndex) -> int:
    """Return the size of all arrays of the index in bytes."""
    return sum(array.nbytes for array in index.arrays.values())


def freeze_all(arrays: dict[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the same arrays as read-only views."""
    return {name: freeze(array) for name, array in arrays.items()}
