"""The sources of build sides as workers see them, and build sides that a worker holds privately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.storage.last_used import LruCache


class BuildSource(Protocol):
    """The location of a build side's rows, as seen from a worker."""

    def digest(self) -> str:
        """Return a name that identifies the rows on this node."""
        ...

    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side with the index that `recipe` describes."""
        ...

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, without an index."""
        ...


_PRIVATE_BUILD_SIDES = 8
_private: LruCache[tuple[str, str], BuildSide] = LruCache(_PRIVATE_BUILD_SIDES)


def open_private_build_side(
    name: str, load: Callable[[], tuple[int, list[pa.Array]]], recipe: IndexRecipe
) -> BuildSide:
    """Load and index a build side for this process only, once for all of its tasks."""
    key = (name, recipe.digest)
    if key not in _private:
        _private[key] = index_in_memory(*load(), recipe)
    return _private[key]
