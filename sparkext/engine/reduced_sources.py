"""Build sides with semi-join reductions: rows that other joins would drop are left out (see `find_early_drops`).

    part, filtered by name ──index──┐
                                    ▼ semi-join on ps_partkey
    partsupp ── scan ─────────────▶ ○ ─▶ rows, cached and indexed

Smaller build sides reduce larger ones. A reduction is pushed down into derived build sides: a semi-join with the output
of a pipeline becomes a join of that pipeline, reduces that pipeline's build sides, and so on down to the scans.
"""

from __future__ import annotations

from collections.abc import Sequence

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.sources import BuildSource, SemiJoinReduction
from sparkext.config import Settings
from sparkext.plans.adaptive.early_drops import find_early_drops
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec


def reduce_sources(
    spec: PipelineSpec, sources: Sequence[BuildSource | None], settings: Settings
) -> dict[int, BuildSource]:
    """Return the build sides of a pipeline by join number, with semi-join reductions that are likely to pay off.

    All tasks of a query choose the same reductions, and their rows have the same fingerprints. Unknown sources (None)
    are left out.
    """
    known_sources = {number: source for number, source in enumerate(sources) if source is not None}
    if settings.debug_join_order == "query":
        return known_sources
    drops = {number: early for number in known_sources if (early := find_early_drops(spec, number))}
    # File sizes are read only if they matter: this costs one request per file in an object store.
    concerned = known_sources.keys() & {*drops, *(drop.by for early_drops in drops.values() for drop in early_drops)}
    files = {number: listed for number in concerned if (listed := known_sources[number].files()) is not None}
    reduced = {number: source.reduced((), settings) for number, source in known_sources.items() if number not in files}
    reducers: set[int] = set()
    for number in sorted(files, key=lambda number: (files[number].bytes, number)):
        # Reduce only by smaller build sides: two build sides that reduce each other would wait for each other.
        reductions = [
            SemiJoinReduction(
                _create_semi_join(spec.joins[drop.by], drop.columns),
                reduced[drop.by].indexed(derive_index_recipe(spec, drop.by, settings.debug_hash_mask)),
            )
            for drop in drops.get(number, ())
            if drop.by in reducers
        ]
        reduced[number] = known_sources[number].reduced(reductions, settings)
        # An error while reducing would be attributed to the wrong build side.
        if files[number].is_selective and not files[number].may_fail:
            reducers.add(number)
    return {number: reduced[number] for number in known_sources}


def _create_semi_join(join: JoinSpec, columns: Sequence[int]) -> JoinSpec:
    """Return the semi-join that drops rows whose `columns` have no match in the build side of `join`."""
    keys = tuple(
        KeyPair(ColumnRef(PROBE, column), key.build, key.type, null_safe=False)
        for key, column in zip(join.keys, columns, strict=True)
    )
    return JoinSpec("semi", keys, join.algorithm, join.label)
