"""The inputs and parameters of a build side's index."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from sparkext.plans.adaptive.join_order import find_reducers
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.spec import JoinSpec, PipelineSpec
from sparkext.rows.types import arrow_key_type
from sparkext.storage.fingerprint import fingerprint_of


@dataclass(frozen=True)
class IndexRecipe:
    """Everything that determines an index of a given build file.

    `key_columns` are positions in the build file, `key_types` the Arrow types in which keys are compared.
    `may_cluster`: the join gathers payload and does not need the ids of build rows. `bounds`: position and type of the
    columns that a range or as-of join compares, beginning with the column to order by; `inverted`: the second column is
    bounded from above only. `probe_ordered`, `rows_matter`: see `plans.adaptive.index_choice.choose_index`. `gathered`:
    the columns that are gathered by row; an index that stores columns stores these.
    """

    key_columns: tuple[int, ...]
    key_types: tuple[pa.DataType, ...]
    null_safe: tuple[bool, ...]
    algorithm: str
    hash_mask: int
    may_cluster: bool = False
    bounds: tuple[tuple[int, pa.DataType], ...] = ()
    inverted: bool = False
    probe_ordered: bool = False
    rows_matter: bool = True
    gathered: tuple[int, ...] = ()

    @property
    def indexed(self) -> list[int]:
        """The columns that the index is built from, which have to be contiguous."""
        return sorted({*self.key_columns, *(number for number, _ in self.bounds)})

    @property
    def digest(self) -> str:
        """Name of the index among the indexes of its build file. It depends on the package version."""
        return fingerprint_of(self)[:16]


def derive_index_recipe(spec: PipelineSpec, number: int, hash_mask: int) -> IndexRecipe:
    """Return the recipe for the index of join `number`, including the columns that are stored with it."""
    join = spec.joins[number]
    gathered = {*spec.gathered(number + 1)}
    if find_reducers(spec, number):  # a reduced build side is indexed again, from these columns
        gathered.update(key.build for key in join.keys)
        gathered.update(column for column, _ in join.compared)
    return IndexRecipe(
        key_columns=tuple(key.build for key in join.keys),
        key_types=tuple(arrow_key_type(parse_key_type(key.type)) for key in join.keys),
        null_safe=tuple(key.null_safe for key in join.keys),
        algorithm=join.algorithm,
        hash_mask=hash_mask,
        may_cluster=join.how in ("inner", "left"),
        bounds=tuple((column, arrow_key_type(parse_key_type(name))) for column, name in join.compared),
        inverted=_is_bounded_above_only(join),
        probe_ordered=join.probe_ordered,
        rows_matter=not join.tests_keys,
        gathered=tuple(sorted(gathered)),
    )


def derive_index_recipes(spec: PipelineSpec, hash_mask: int) -> list[IndexRecipe]:
    """Return the recipe of each join."""
    return [derive_index_recipe(spec, number, hash_mask) for number in range(len(spec.joins))]


def _is_bounded_above_only(join: JoinSpec) -> bool:
    """Return whether no condition bounds the second compared column from below."""
    second = join.compared[1:]
    return bool(second) and all(pair.op[0] == ">" for pair in join.ranges if (pair.build, pair.type) == second[0])
