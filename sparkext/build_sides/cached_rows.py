"""Build sides that the workers of each node materialise, and cache on disk with their indexes."""

from __future__ import annotations

import errno
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from sparkext.build_sides.file import check_build_size, check_memory
from sparkext.build_sides.index_builder import BuiltIndex, index_columns
from sparkext.build_sides.index_cache import evict, touch
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import INDEX_SUFFIX, BuildSide, open_cached_index
from sparkext.build_sides.rows_on_disk import move_to_disk, share_of_headroom
from sparkext.build_sides.sources import BuildSource, open_private_build_side
from sparkext.memory.freed import release_memory
from sparkext.rows.collected import CollectedRows
from sparkext.rows.contiguous import make_contiguous
from sparkext.storage.local_folder import local_folder

# Errors of source files are `FileReadError`s, which are no OSErrors. ENOENT: the entry was evicted in every attempt,
# for lack of space.
_DISK_PROBLEMS = (
    *(errno.ENOENT, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
    *(errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP),  # a shared file system without locks
    errno.ETIMEDOUT,  # a lock whose holder stands still
)


class CachedRows(BuildSource):
    """Rows that each node materialises once, in the first worker that needs them, on the cores of all waiting workers.

    `max_bytes`: limit of the build side. `threads`: the total number of cores of this process and of the processes that
    wait for it.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {
        "max_bytes": "a limit: a build side that exceeds it is an error",
        "threads": "the division of work: rows are in the order of the files",
    }

    max_bytes: int
    threads: int

    @abstractmethod
    def collect(self, rows: CollectedRows) -> tuple[pa.Table, Sequence[str]]:
        """Materialise all rows in several threads, through `rows`; return them and `made_by` (see `IndexInfo`)."""

    @abstractmethod
    def rows_read(self) -> int:
        """Return the number of rows in the source files, before any joins."""

    def open(self, recipe: IndexRecipe) -> BuildSide:
        """Return the build side from the cache, materialising and indexing it first if it is missing."""
        try:
            return self._open_cached(recipe)
        except OSError as error:
            if error.errno not in _DISK_PROBLEMS:
                raise
            warnings.warn(
                f"a build side cannot be cached on disk ({error}): this worker holds its own copy in memory",
                stacklevel=2,
            )
            return open_private_build_side(self.digest(), self.columns, recipe)

    def columns(self) -> tuple[int, list[pa.Array]]:
        """Return the number of rows, and the columns, materialised in this process's memory."""
        with CollectedRows(self._check_in_memory) as rows:
            table, _ = self.collect(rows)
        return table.num_rows, [make_contiguous(column) for column in table.columns]

    def entry(self, recipe: IndexRecipe) -> Path:
        """Return the path of this index in the cache, for the present rows."""
        return local_folder() / f"{self.digest()}.{recipe.digest}{INDEX_SUFFIX}"

    def _open_cached(self, recipe: IndexRecipe) -> BuildSide:
        entry = self.entry(recipe)
        for last_attempt in (False, False, True):
            try:
                reused = entry.exists()
                side = open_cached_index(entry, lambda: self._build_index(recipe, entry.parent))
                touch(entry)
                return replace(side, reused=reused)
            except FileNotFoundError:
                if last_attempt:
                    raise
                # Another query has evicted the entry: build it again.
        raise AssertionError("the last attempt returns or raises")

    def _build_index(self, recipe: IndexRecipe, folder: Path) -> BuiltIndex:
        with CollectedRows(self._check, share_of_headroom, folder) as collected:
            table, made_by = self.collect(collected)
        rows, columns = table.num_rows, table.columns
        if collected.spilled:
            release_memory()
            for number, column in zip(recipe.indexed, move_to_disk(table.select(recipe.indexed), folder), strict=True):
                columns[number] = column
        del table  # so that columns can be freed one by one
        built = index_columns(rows, columns, recipe, self.threads, keep=True)
        return replace(built, info=replace(built.info, made_by=made_by))

    def _check(self, rows: int, size: int) -> None:
        check_build_size(rows, size, self.max_bytes)

    def _check_in_memory(self, rows: int, size: int) -> None:
        self._check(rows, size)
        check_memory(rows, size)


def evict_other_entries(used: Iterable[tuple[BuildSource, IndexRecipe]], max_bytes: int) -> None:
    """Evict entries of this node's cache beyond `max_bytes`, except the indexes of these sources."""
    try:
        entries = {source.entry(recipe) for source, recipe in used}
        if entries_in_use := {entry for entry in entries if entry is not None}:
            evict(entries_in_use, max_bytes)
    except OSError as error:
        if error.errno not in _DISK_PROBLEMS:
            raise  # otherwise there is no cache, and `CachedRows.open` has warned about it
