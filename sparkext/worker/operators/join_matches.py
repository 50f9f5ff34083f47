"""What rows of a pipeline match in the build side of a join."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sparkext.build_sides.index_store import BuildSide
from sparkext.kernels.bounds import Bound
from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.keys import cast_key
from sparkext.kernels.matches import Matches
from sparkext.kernels.nearest import NearestKeys
from sparkext.kernels.nested_loop import NestedLoop
from sparkext.kernels.range_index import Candidates, RangeKeys
from sparkext.plans.key_types import parse_key_type
from sparkext.plans.spec import ColumnRef, JoinSpec
from sparkext.rows.conditions import holds
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type
from sparkext.worker.probe_keys import ProbeKeys
from sparkext.worker.theta_condition import FormulaCondition, bind_theta

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Found = Matches | Candidates | NestedLoop
"""What a lookup gives: ranges of matches, or something that finds them as they are asked for."""


class JoinMatches:
    """The keys, ranges and conditions of a join, bound to its build side, which is source number `source`.

    `kind` is what a probe row gets of its matches: see `kernels.matches.probe`.
    """

    def __init__(self, spec: JoinSpec, kind: str, build: BuildSide, source: int) -> None:
        """Bind a join; compile its conditions, unless this process has."""
        self._spec = spec
        self._kind = kind
        self._build = build
        self._keys = ProbeKeys(spec.keys, build)
        self._theta = None if spec.theta is None else bind_theta(spec.theta, source, build)
        self._guard = None if spec.guard is None else FormulaCondition(spec.guard, source, build)
        compared = [key.probe for key in spec.keys] + [pair.probe for pair in spec.ranges]
        self.looked_up: Sequence[ColumnRef] = compared if spec.as_of is None else [*compared, spec.as_of.probe]
        """The columns that are gathered to look rows up."""
        self.tested = [] if spec.condition is None else [ColumnRef(*place) for place in spec.condition.columns()]
        """The columns that are gathered to test pairs."""

    def lookup(self, rows: RowSet) -> Found:
        """Find what these rows match, one match a row where nothing more is asked."""
        as_of = self._spec.as_of
        if as_of is not None:
            values = cast_key(rows.gather(as_of.probe), arrow_key_type(parse_key_type(as_of.type)))
            sought = NearestKeys(self._keys.of(rows), values, as_of.direction, as_of.exact, as_of.tolerance)
            return self._build.lookup_nearest(sought)
        if self._spec.nested:
            assert self._theta is not None, "or there is nothing to try pairs by"
            found: Found = self._theta.loop(rows)
        elif self._guard is not None and self._guard.may_fail(rows):
            found = self._guard.loop(rows)
        elif self._spec.ranges:
            found = self._build.lookup_ranges(RangeKeys(self._keys.of(rows), self._bounds(rows)))
        else:
            return self._build.lookup(self._keys.of(rows))
        pairs_count = self._tests_pairs or self._kind in ("inner", "left")
        return found if isinstance(found, Matches) or pairs_count else found.any()

    def is_conditional(self, found: Found) -> bool:
        """Whether it takes the pairs of a row, or a look at each, to tell what the join makes of it."""
        return self._tests_pairs or (self._kind == "left" and isinstance(found, NestedLoop))

    def kept(self, pairs: RowSet, until_hit: Int64Array | None) -> npt.NDArray[np.intp] | None:
        """Return which of these pairs fulfil the condition; None for all of them. `until_hit`: see `PairTest.each`."""
        kept = None
        if self._spec.condition is not None:
            kept = np.flatnonzero(holds(self._spec.condition, pairs))
        if self._theta is not None and not self._spec.nested:
            # Only where the rest holds: it may keep this from failing.
            left = pairs if kept is None else pairs.picked(kept)
            rows = until_hit if kept is None or until_hit is None else until_hit[kept]
            passed = np.flatnonzero(self._theta.holds(left, rows))
            kept = passed if kept is None else kept[passed]
        return kept

    @property
    def _tests_pairs(self) -> bool:
        """Whether pairs that are found have to be tested."""
        return self._spec.condition is not None or (self._theta is not None and not self._spec.nested)

    def _bounds(self, rows: RowSet) -> list[list[Bound]]:
        """Fetch what bounds each compared build column, for each of these rows; a probe column bounding both once."""
        ranges = self._spec.ranges
        values = {
            (probe, name): cast_key(rows.gather(probe), arrow_key_type(parse_key_type(name)))
            for probe, name in dict.fromkeys((pair.probe, pair.type) for pair in ranges)
        }
        return [
            [
                Bound(_MIRRORED[pair.op], values[pair.probe, pair.type])
                for pair in ranges
                if (pair.build, pair.type) == column
            ]
            for column in self._spec.compared
        ]
