"""The plan of a task's pipeline: its joins, and the build sides that it requires before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparkext.build_sides.cached_rows import evict_other_entries
from sparkext.build_sides.index_recipe import IndexRecipe, derive_index_recipes
from sparkext.build_sides.index_store import BuildSide
from sparkext.build_sides.sources import BuildSource, IndexedSource
from sparkext.config import Settings
from sparkext.engine.derived_rows import SOURCE, open_source
from sparkext.engine.reduced_sources import reduce_sources
from sparkext.engine.sources.derived_rows import derive_source_recipe
from sparkext.engine.worker_task import task_id
from sparkext.plans.pipeline.spec import PipelineSpec


def plan_requested_sides(
    spec: PipelineSpec, sources: Sequence[BuildSource | None], derived_probe: BuildSource | None, settings: Settings
) -> dict[int, IndexedSource]:
    """Return the required build sides by join number, with semi-join reductions applied.

    Unknown sources (None) are left out. `derived_probe` has the number `SOURCE`; its index is never used.
    """
    mask = settings.debug_hash_mask
    recipes = derive_index_recipes(spec, mask)
    sides = {
        number: IndexedSource(source, recipes[number])
        for number, source in reduce_sources(spec, sources, settings).items()
    }
    if derived_probe is not None:
        sides[SOURCE] = IndexedSource(derived_probe.reduced((), settings), derive_source_recipe(spec, mask))
    return sides


@dataclass(frozen=True)
class PipelinePlan:
    """The joins of a pipeline, the sources of their build sides, and the schema of its output.

    Build sides without a source (None) are received with the rows of the probe side.
    """

    spec: PipelineSpec
    sources: tuple[BuildSource | None, ...]
    output_schema: pa.Schema

    def open(self, settings: Settings, derived_probe: BuildSource | None = None) -> dict[int, BuildSide]:
        """Open all build sides that have a source, by join number, and `derived_probe` as `SOURCE`.

        Tasks start with different build sides, so workers that start together build different indexes.
        """
        requested = [*plan_requested_sides(self.spec, self.sources, derived_probe, settings).items()]
        first = task_id().partition % max(1, len(requested))
        sides = {number: open_source(side, number) for number, side in requested[first:] + requested[:first]}
        if not all(side.reused for side in sides.values()):
            evict_other_entries(((side.source, side.recipe) for _, side in requested), settings.index_cache_max_bytes)
        return dict(sorted(sides.items()))

    def recipes(self, settings: Settings) -> dict[int, IndexRecipe]:
        """Return the recipe of each join's index, by join number."""
        return dict(enumerate(derive_index_recipes(self.spec, settings.debug_hash_mask)))
