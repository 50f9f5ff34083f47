"""The sources of build sides as workers see them, and build sides that a worker holds privately."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import Settings
from sparkext.plans.pipeline.spec import JoinSpec
from sparkext.storage.fingerprint import fingerprint_of
from sparkext.storage.last_used import LruCache


class SourceFiles(NamedTuple):
    """The total size of the files of a build side, and the properties of its rows.

    `is_selective`: some rows of the files are probably left out. `may_fail`: values may cause an error.
    """

    bytes: int
    is_selective: bool
    may_fail: bool


class BuildSource(ABC):
    """The location of a build side's rows, as seen from a worker.

    The defaults are for rows that workers neither cache nor read or derive from files.
    """

    @abstractmethod
    def digest(self) -> str:
        """Return a name that identifies the rows on this node."""

    @abstractmethod
    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side with the index that `recipe` describes."""

    @abstractmethod
    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, without an index."""

    def entry(self, recipe: IndexRecipe) -> Path | None:
        """Return the path of this index in the node's cache, None if the rows are not cached."""
        return None

    def rows_read(self) -> int:
        """Return the number of rows before any joins."""
        return self.columns()[0]

    def files(self) -> SourceFiles | None:
        """Return the files that the rows are read or derived from, None without files."""
        return None

    def indexed(self, recipe: IndexRecipe) -> IndexedSource:
        """Return this build side with the index of its join."""
        return IndexedSource(self, recipe)

    def reduced(self, reductions: Sequence[SemiJoinReduction], settings: Settings) -> BuildSource:
        """Return the build side with these reductions, if they can be applied, and with reduced inputs."""
        return self


@dataclass(frozen=True)
class IndexedSource(BuildSource):
    """The build side of a join, with the index of this join.

    `open` returns this index for any recipe, so that no second index is built.
    """

    source: BuildSource
    recipe: IndexRecipe

    def digest(self) -> str:
        """Return a fingerprint of the rows and the index."""
        return fingerprint_of(self)

    def open(self, recipe: IndexRecipe | None = None) -> BuildSide:
        """Return the build side with its index."""
        return self.source.open(self.recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, without an index."""
        return self.source.columns()

    def files(self) -> SourceFiles | None:
        """Return the files that the rows are read or derived from."""
        return self.source.files()

    def indexed(self, recipe: IndexRecipe) -> IndexedSource:
        """Return this object."""
        return self


@dataclass(frozen=True)
class SemiJoinReduction:
    """A semi-join with the build side of another join. That join would drop the same rows later."""

    join: JoinSpec
    source: IndexedSource


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
