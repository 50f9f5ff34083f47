"""A cache for the most recently used entries of a process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """A mapping of at most `limit` entries: an additional entry evicts the least recently used one.

    Setting an entry and getting it by its key count as uses, testing for its presence does not. `made` counts the
    entries that `get_or_make` has created. Not thread-safe.
    """

    def __init__(self, limit: int) -> None:
        """Create a cache of up to `limit` entries, at least one."""
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
        """Return the entry of a key, which counts as a use, or None."""
        if key not in self:
            return None
        return self[key]

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the entry of a key; create it if it is missing."""
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
        """Yield the keys, least recently used first. Entries may be deleted during the iteration."""
        return iter(list(self._entries))
