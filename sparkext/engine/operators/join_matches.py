"""The matches of probe rows in the build side of a join."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparkext.build_sides.index_store import BuildSide
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.probe_keys import ProbeKeys
from sparkext.expressions.arrow_evaluator import holds
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.indexes.bounds import Bound
from sparkext.kernels.indexes.matches import Matches, Pairs
from sparkext.kernels.indexes.nearest import NearestKeys
from sparkext.kernels.indexes.nested_loop import NestedLoop
from sparkext.kernels.indexes.range_index import Candidates, RangeKeys
from sparkext.kernels.keys.normalised import cast_key
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.spec import MIRRORED, ColumnRef, JoinSpec
from sparkext.predicates.theta_condition import CompiledCondition, bind_theta
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type

Lookup = Matches | Candidates | NestedLoop
"""Ranges of matches, or an object that finds matches on demand."""


@dataclass(frozen=True)
class FoundMatches:
    """The matches of some rows.

    `conditional`: whether the pairs have to be tested or expanded to find out which rows have a match.
    """

    pairs: Lookup
    conditional: bool = False


class JoinMatches:
    """The keys, ranges and conditions of a join, bound to its build side, which is the source with index `source`.

    `kind` is the join kind for probe rows, see `kernels.indexes.matches.probe`.
    """

    def __init__(self, spec: JoinSpec, kind: str, build: BuildSide, source: int) -> None:
        """Bind the join, and compile its conditions unless this process has compiled them before."""
        self._spec = spec
        self._kind = kind
        self._build = build
        self._source = source
        self._keys = ProbeKeys(spec.keys, build)
        self._theta = None if spec.theta is None else bind_theta(spec.theta, source, build)
        self._guard = None if spec.guard is None else CompiledCondition(spec.guard, source, build)
        compared = [key.probe for key in spec.keys] + [pair.probe for pair in spec.ranges]
        self.looked_up: Sequence[ColumnRef] = compared if spec.as_of is None else [*compared, spec.as_of.probe]
        """The columns that are gathered for lookups."""
        condition = () if spec.condition is None else spec.condition.columns()
        self.tested = [ColumnRef(node.source, node.column) for node in condition]
        """The columns that are gathered to test pairs."""

    def lookup(self, rows: RowSet, budget: OperatorBudget) -> FoundMatches:
        """Find the matches of these rows; at most one per row if the join needs no more."""
        as_of = self._spec.as_of
        if as_of is not None:
            values = cast_key(rows.gather(as_of.probe), arrow_key_type(parse_key_type(as_of.type)))
            nearest_keys = NearestKeys(self._keys.of(rows), values, as_of.direction, as_of.exact, as_of.tolerance)
            return FoundMatches(self._build.lookup_nearest(nearest_keys))
        if self._spec.nested:
            assert self._theta is not None, "otherwise there is no condition for pairs"
            return self._try_all_pairs(rows, self._theta.loop(rows), budget)
        if self._guard is not None and self._guard.may_fail(rows):
            return self._try_all_pairs(rows, self._guard.loop(rows), budget)
        if not self._spec.ranges:
            return FoundMatches(self._build.lookup(self._keys.of(rows)), self._tests_pairs)
        matches = self._build.lookup_ranges(RangeKeys(self._keys.of(rows), self._bounds(rows)))
        if isinstance(matches, Candidates) and not self._tests_pairs and not self._emits_pairs:
            matches = matches.any()
        return FoundMatches(matches, self._tests_pairs)

    def _try_all_pairs(self, rows: RowSet, loop: NestedLoop, budget: OperatorBudget) -> FoundMatches:
        """Find the matches of these rows by testing all pairs.

        A test may fail on pairs after the first match of a row. If the join needs only this match, such failures are
        ignored, as Spark does not test these pairs.
        """
        if self._emits_pairs:
            return FoundMatches(loop, self._tests_pairs or self._kind == "left")
        if not self._tests_pairs:
            return FoundMatches(loop.any())

        def is_match(pairs: Pairs) -> npt.NDArray[np.bool_]:
            candidates = rows.joined(pairs, self._build.columns, False, self._source)
            verdicts = [self._holds(piece) for piece in split_into_pieces(candidates, self.tested, budget)]
            return np.concatenate(verdicts)

        return FoundMatches(loop.any(is_match))

    def kept(self, pairs: RowSet, until_hit: Int64Array | None) -> npt.NDArray[np.intp] | None:
        """Return the indexes of pairs that fulfil the condition; None if all do. `until_hit`: see `PairTest.each`."""
        indexes = None
        if self._spec.condition is not None:
            indexes = np.flatnonzero(holds(self._spec.condition, pairs))
        if self._theta is not None and not self._spec.nested:
            # Test only the remaining pairs: the first condition may exclude pairs on which this one fails.
            remaining = pairs if indexes is None else pairs.picked(indexes)
            rows = until_hit if indexes is None or until_hit is None else until_hit[indexes]
            passed = np.flatnonzero(self._theta.holds(remaining, rows))
            indexes = passed if indexes is None else indexes[passed]
        return indexes

    def _holds(self, pairs: RowSet) -> npt.NDArray[np.bool_]:
        indexes = self.kept(pairs, None)
        if indexes is None:
            return np.ones(pairs.length, dtype=np.bool_)
        verdicts = np.zeros(pairs.length, dtype=np.bool_)
        verdicts[indexes] = True
        return verdicts

    @property
    def _emits_pairs(self) -> bool:
        """Whether all pairs of a row are emitted, instead of the row alone."""
        return self._kind in ("inner", "left")

    @property
    def _tests_pairs(self) -> bool:
        """Whether the pairs found by a lookup have to be tested."""
        return self._spec.condition is not None or (self._theta is not None and not self._spec.nested)

    def _bounds(self, rows: RowSet) -> list[list[Bound]]:
        """Return the bounds of each compared build column for these rows; gather each probe column only once."""
        ranges = self._spec.ranges
        values = {
            (probe, name): cast_key(rows.gather(probe), arrow_key_type(parse_key_type(name)))
            for probe, name in dict.fromkeys((pair.probe, pair.type) for pair in ranges)
        }
        return [
            [
                Bound(MIRRORED[pair.op], values[pair.probe, pair.type])
                for pair in ranges
                if (pair.build, pair.type) == column
            ]
            for column in self._spec.compared
        ]


def split_into_pieces(rows: RowSet, references: Sequence[ColumnRef], budget: OperatorBudget) -> Iterator[RowSet]:
    """Yield the rows in pieces whose copied columns fit the budget's bytes; a single piece if no column is copied."""
    if not rows.copies(references):
        yield rows
        return
    yield from rows.pieces(references, budget.most_bytes())
