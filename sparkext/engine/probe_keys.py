"""The keys of probe rows."""

from __future__ import annotations

from collections.abc import Sequence

from sparkext.build_sides.index_store import BuildSide
from sparkext.kernels.keys.normalised import NormalisedKeys, cast_key, normalise_keys
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.spec import KeyPair
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type


class ProbeKeys:
    """The probe columns of a join's equalities, with the types and key ranges of its build side."""

    def __init__(self, pairs: Sequence[KeyPair], build: BuildSide) -> None:
        """Store the key types in which both sides are compared."""
        self._columns = [(pair.probe, arrow_key_type(parse_key_type(pair.type))) for pair in pairs]
        self._null_safe = [pair.null_safe for pair in pairs]
        self._ranges = build.info.key_ranges

    def of(self, rows: RowSet) -> NormalisedKeys:
        """Gather and normalise the keys of these rows."""
        if not self._columns:
            return NormalisedKeys(rows.length, None, None, None)
        columns = [cast_key(rows.gather(column), key_type) for column, key_type in self._columns]
        return normalise_keys(columns, self._null_safe, self._ranges)
