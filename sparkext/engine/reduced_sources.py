"""Build sides with semi-join reductions: rows that other joins would drop are left out (see `find_early_drops`).

    part, filtered by name ──index──┐
                                    ▼ semi-join on ps_partkey
    partsupp ── scan ─────────────▶ ○ ─▶ rows, cached and indexed

Smaller build sides reduce larger ones. A reduction is pushed down into derived build sides: a semi-join with the output
of a pipeline becomes a join of that pipeline, reduces that pipeline's build sides, and so on down to the scans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from sparkext.build_sides.cached_rows import CachedRows
from sparkext.build_sides.index_recipe import IndexRecipe, derive_index_recipes
from sparkext.build_sides.index_store import BuildSide
from sparkext.build_sides.scanned_files import ScannedFiles
from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings
from sparkext.engine.derived_rows import DerivedRows, IndexedSource, SemiJoinReduction
from sparkext.plans.adaptive.early_drops import append_drops, find_early_drops, trace_columns
from sparkext.plans.adaptive.join_order import count_movable
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.pipeline.projection import Projection
from sparkext.plans.pipeline.scan import Split
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.rows.collected import CollectedRows

_PARTS_OF_A_THREAD = 4
_LEAST_PART_BYTES = 4 << 20


def reduce_sources(
    spec: PipelineSpec, sources: Sequence[BuildSource | None], settings: Settings
) -> list[BuildSource | None]:
    """Return the build sides of a pipeline, with semi-join reductions that are likely to pay off.

    All tasks of a query choose the same reductions, and their rows have the same fingerprints. None marks an unknown
    source.
    """
    if settings.debug_join_order == "query":
        return list(sources)
    made = [None if source is None else reduce_inputs(source, settings) for source in sources]
    drops = {number: found for number in range(len(sources)) if (found := find_early_drops(spec, number))}
    if not drops:
        return made  # without reading file sizes, which costs one request per file in an object store
    recipes = derive_index_recipes(spec, settings.debug_hash_mask)
    concerned = {*drops, *(drop.by for found in drops.values() for drop in found)}
    sizes = {number: size for number in concerned if (size := _count_file_bytes(sources[number])) is not None}
    ascending = sorted(sizes, key=lambda number: (sizes[number], number))
    for place, number in enumerate(ascending):
        # Reduce only by smaller build sides: two build sides that reduce each other would wait for each other.
        smaller = {other for other in ascending[:place] if _drops_rows(sources[other])}
        droppings = [
            (drop, IndexedSource.of(made[drop.by], recipes[drop.by]))
            for drop in drops.get(number, ())
            if drop.by in smaller
        ]
        known = [(drop.columns, spec.joins[drop.by], given) for drop, given in droppings if given is not None]
        source = sources[number]
        assert source is not None, "it has a size"
        made[number] = _reduce_source(source, known, settings)
    return made


@dataclass(frozen=True)
class ReducedRows(DerivedRows):
    """A reduced build side. If the index of all rows (`whole`) is cached, `ReducedRows` uses it instead."""

    whole: CachedRows

    def entry(self, recipe: IndexRecipe) -> Path:
        """Return the path of this index in the cache, or the path of the index of all rows if that is cached."""
        kept = self.whole.entry(recipe)
        return kept if kept.exists() else super().entry(recipe)

    def collect(self, rows: CollectedRows) -> tuple[pa.Table, Sequence[str]]:
        """Run the pipeline. If its semi-joins would drop too few rows, collect `whole`: a scan copies no rows."""
        return super().collect(rows) if self.open_reductions() else self.whole.collect(rows)

    def _open_cached(self, recipe: IndexRecipe) -> BuildSide:
        if self.whole.entry(recipe).exists():
            return self.whole.open(recipe)
        return super()._open_cached(recipe)


def _reduce_source(
    source: BuildSource, droppings: Sequence[tuple[tuple[int, ...], JoinSpec, IndexedSource]], settings: Settings
) -> BuildSource:
    """Return a build side reduced by semi-joins. Each has its compared columns, its join, and the join's build side."""
    whole = reduce_inputs(source, settings)
    pipeline = _as_derived_rows(source, settings) if isinstance(source, ScannedFiles) and droppings else source
    if not isinstance(whole, CachedRows) or not isinstance(pipeline, DerivedRows):
        return whole
    found = []
    for columns, join, given in droppings:
        places = trace_columns(pipeline.spec, pipeline.projection, columns)
        if places is not None:
            found.append(SemiJoinReduction(_create_semi_join(join, places), given))
    if not found:
        return whole
    fields = {**vars(pipeline), "dropping": tuple(found)}
    return reduce_inputs(ReducedRows(**fields, whole=whole), settings)


def reduce_inputs(source: BuildSource, settings: Settings) -> BuildSource:
    """Return a derived build side whose own build sides are reduced; any other source unchanged."""
    if not isinstance(source, DerivedRows):
        return source
    spec, _ = append_drops(source.spec, tuple(drop.join for drop in source.dropping))
    below = reduce_sources(spec, [*source.sources, *(drop.source for drop in source.dropping)], settings)
    known = tuple(one for one in below[: len(source.sources)] if one is not None)
    return replace(source, sources=known)


def _create_semi_join(join: JoinSpec, places: Sequence[ColumnRef]) -> JoinSpec:
    keys = tuple(
        KeyPair(place, key.build, key.type, null_safe=False) for key, place in zip(join.keys, places, strict=True)
    )
    return JoinSpec("semi", keys, join.algorithm, join.label)


def _as_derived_rows(scanned: ScannedFiles, settings: Settings) -> DerivedRows:
    """Return a scan as a `DerivedRows` without joins."""
    scan = scanned.scan
    count = scan.spec.outputs
    schema = pa.schema([scan.schema.field(number) for number in range(count)])
    spec = PipelineSpec(count, (), tuple(ColumnRef(PROBE, number) for number in range(count)))
    kept = tuple(Expression("column", None, column=number) for number in range(count))
    total = sum(_length(scanned, split) for split in scanned.splits)
    limit = max(_LEAST_PART_BYTES, total // (_PARTS_OF_A_THREAD * scanned.threads))
    parts = tuple(
        (part,) for split in scanned.splits for part in _split_by_bytes(split, _length(scanned, split), limit)
    )
    limits = (settings, scanned.max_bytes, scanned.cache_bytes, scanned.threads)
    return DerivedRows(spec, scan, parts, (), schema, Projection(None, kept), schema, *limits)


def _split_by_bytes(split: Split, length: int, limit: int) -> list[Split]:
    """Split a split into parts of `limit` bytes; the last part keeps the remaining length of the original split."""
    cuts = [*range(0, max(length, 1), limit)]
    return [
        replace(split, start=split.start + cut, length=split.length - cut if cut == cuts[-1] else limit) for cut in cuts
    ]


def _length(source: CachedRows, split: Split) -> int:
    size = int(source.scan.identity(split.path)[1])  # type: ignore[attr-defined]
    return max(0, min(split.length, size - split.start))


def _count_file_bytes(source: BuildSource | None) -> int | None:
    """Return the bytes of the files that a build side is read or derived from; None if workers do not read it."""
    if isinstance(source, IndexedSource):
        return _count_file_bytes(source.source)
    if isinstance(source, ScannedFiles):
        return sum(_length(source, split) for split in source.splits)
    if isinstance(source, DerivedRows):
        below = [_count_file_bytes(other) or 0 for other in source.sources]
        return sum(below) + sum(_length(source, split) for part in source.parts for split in part)
    return None


def _drops_rows(source: BuildSource | None) -> bool:
    """Return whether a build side probably lacks some rows of its files, and cannot fail.

    An error while reducing would be attributed to the wrong build side.
    """
    return _is_selective(source) and not _may_fail(source)


def _is_selective(source: BuildSource | None) -> bool:
    if isinstance(source, IndexedSource):
        return _is_selective(source.source)
    if isinstance(source, ScannedFiles):
        return _tests_values(source.scan.spec.filter)
    if not isinstance(source, DerivedRows):
        return False
    spec = source.spec
    has_tests = spec.filter is not None or source.projection.filter is not None
    dropping = [
        below for join, below in zip(spec.joins, source.sources, strict=True) if join.how in ("inner", "semi", "anti")
    ]
    return has_tests or _tests_values(source.scan.spec.filter) or any(map(_is_selective, dropping))


def _may_fail(source: BuildSource | None) -> bool:
    if isinstance(source, IndexedSource):
        return _may_fail(source.source)
    if not isinstance(source, DerivedRows):
        return False
    spec = source.spec
    computed = [expression for one in spec.aggregations for expression in one.expressions()]
    computed += [test for test in (spec.filter, source.projection.filter) if test is not None]
    computed += source.projection.columns
    checked = any(call.checked for one in spec.aggregations for call in one.calls)
    return (
        checked
        or count_movable(spec) < len(spec.joins)
        or any(expression.may_fail for expression in computed)
        or any(map(_may_fail, source.sources))
    )


def _tests_values(test: Expression | None) -> bool:
    """Return whether a filter contains a test other than IS NOT NULL."""
    if test is None:
        return False
    if test.op == "and":
        return any(map(_tests_values, test.args))
    return not (test.op == "not" and test.args[0].op == "is_null")
