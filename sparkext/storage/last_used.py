"""What a process keeps, up to a number of entries: those that were used last."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LastUsed(Generic[Key, Value]):
    """A mapping of at most `limit` entries: one more takes the place of that which was not used for the longest time.

    Setting an entry and getting it by its key are uses, asking whether it is there is none. `made` counts the entries
    that `get_or_make` has made. Not for several threads.
    """

    def __init__(self, limit: int) -> None:
        """Keep up to `limit` entries, one at least."""
        self._limit = limit
        self.made = 0
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def __getitem__(self, key: Key) -> Value:
        self._entries.move_to_end(key)
        return self._entries[key]

    def get(self, key: Key) -> Value | None:
        """Return the entry of a key, which is a use of it, or None."""
        if key not in self:
            return None
        return self[key]

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the entry of a key. If there is none, make it."""
        if key not in self:
            value = make()
            self.made += 1
            self[key] = value
        return self[key]

    def __setitem__(self, key: Key, value: Value) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def __delitem__(self, key: Key) -> None:
        del self._entries[key]

    def __iter__(self) -> Iterator[Key]:
        """Yield the keys, least recently used first. Entries may be deleted meanwhile."""
        return iter(list(self._entries))
