"""Groups of consecutive items, such as batches, within limits of their total sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add, gt
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Batcher(Generic[Item]):
    """Gathers items into groups. Not thread-safe.

    A group is closed before the item that would exceed a limit. An item that exceeds a limit alone is a group.

    Parameters
    ----------
    sizes
        Returns the sizes of an item, such as its rows and its bytes.
    limits
        Returns the maximum of each total of a group. Called when a group begins.
    """

    def __init__(self, sizes: Callable[[Item], Sequence[int]], limits: Callable[[], Sequence[int]]) -> None:
        """Begin without items."""
        self._sizes, self._limits = sizes, limits
        self._items: list[Item] = []
        self._most: Sequence[int] = ()
        self.totals: Sequence[int] = ()

    def add(self, item: Item) -> list[Item]:
        """Add an item; return the group before it if that is closed now, else nothing."""
        totals = sizes = self._sizes(item)
        closed: list[Item] = []
        if self._items:
            totals = [*map(add, self.totals, sizes)]
            if any(map(gt, totals, self._most)):
                closed, totals = self.take(), sizes
        if not self._items:
            self._most = self._limits()
        self._items.append(item)
        self.totals = totals
        return closed

    def take(self) -> list[Item]:
        """Close the present group and return it; return nothing if it has no items."""
        closed, self._items = self._items, []
        return closed


def group_items(
    items: Iterable[Item], sizes: Callable[[Item], Sequence[int]], limits: Callable[[], Sequence[int]]
) -> Iterator[list[Item]]:
    """Yield all items in groups, see `Batcher`."""
    batcher = Batcher(sizes, limits)
    for item in items:
        if closed := batcher.add(item):
            yield closed
    if closed := batcher.take():
        yield closed
