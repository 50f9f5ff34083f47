"""The data that a pipeline requires before it runs: an index of each build side, and the derived probe side, if any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparkext.build_sides.index_recipe import IndexRecipe, derive_index_recipes
from sparkext.build_sides.index_store import BuildSide
from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings
from sparkext.engine.derived_rows import SOURCE, open_source
from sparkext.engine.reduced_sources import reduce_sources
from sparkext.engine.sources.derived_rows import derive_source_recipe
from sparkext.plans.pipeline.spec import PipelineSpec


class RequestedSide(NamedTuple):
    """A source, and the recipe of the index in which join `number` looks rows up.

    If `number` is `SOURCE`, the source is the derived probe side, whose index is never used.
    """

    source: BuildSource
    recipe: IndexRecipe
    number: int

    def open(self) -> BuildSide:
        """Open the rows and their index, building them unless they are cached."""
        return open_source(self.source, self.recipe, self.number)


def plan_requested_sides(
    spec: PipelineSpec, sources: Sequence[BuildSource | None], made: BuildSource | None, settings: Settings
) -> dict[int, RequestedSide]:
    """Return the required build sides by join number, with semi-join reductions applied.

    Unknown sources (None) are left out. The derived probe side `made` has the number `SOURCE`.
    """
    mask = settings.debug_hash_mask
    recipes = derive_index_recipes(spec, mask)
    sides = {
        number: RequestedSide(source, recipes[number], number)
        for number, source in reduce_sources(spec, sources, settings).items()
    }
    if made is not None:
        sides[SOURCE] = RequestedSide(made.reduced((), settings), derive_source_recipe(spec, mask), SOURCE)
    return sides
