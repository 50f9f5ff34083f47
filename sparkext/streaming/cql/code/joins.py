"""Plans the joins of a select: for a row of each input, the order of the other inputs, and the indexes used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkext.kernels.arena.chains import CHAIN_WORDS
from sparkext.kernels.arena.relations import BAG_WORDS
from sparkext.plans.expressions.expression import Expression
from sparkext.streaming.cql.code.layout import Int64Literal, Layout
from sparkext.streaming.cql.language.queries import SelectPlan


@dataclass(frozen=True)
class Index:
    """An index of an input of a join by key expressions. `field`: the word of its chain in the input's records."""

    keys: tuple[Expression, ...]
    header: Int64Literal
    field: Int64Literal


class JoinPlan:
    """The tables and indexes of a select's inputs, and for a row of each input the order of the other inputs."""

    def __init__(self, layout: Layout, plan: SelectPlan) -> None:
        """Plan the join orders of all inputs."""
        self._layout = layout
        self.tables = [layout.table() for _ in plan.inputs]
        self.ways = [_order_sources(plan, start) for start in range(len(plan.inputs))]
        self.indexes: list[dict[tuple[Expression, ...], Index]] = [{} for _ in plan.inputs]
        for steps in self.ways:
            for step in steps:
                self.index(step.source, step.keys)

    def index(self, source: int, keys: tuple[Expression, ...]) -> Index:
        """Return the index of an input by some keys; an index without keys contains all rows."""
        indexes = self.indexes[source]
        if keys not in indexes:
            indexes[keys] = Index(keys, self._layout.table(), Int64Literal(BAG_WORDS + CHAIN_WORDS * len(indexes)))
        return indexes[keys]

    def own(self, source: int) -> list[Index]:
        """Return the indexes of an input."""
        return [*self.indexes[source].values()]

    def row_at(self, source: int) -> Int64Literal:
        """Return the word of an input's records at which its row begins, after the chains of all indexes."""
        return Int64Literal(BAG_WORDS + CHAIN_WORDS * len(self.indexes[source]))


@dataclass(frozen=True)
class JoinStep:
    """The next source to join: the keys of its index, the values to look up, and the conditions to test afterwards."""

    source: int
    keys: tuple[Expression, ...]
    probes: tuple[Expression, ...]
    tests: tuple[Expression, ...]


def _order_sources(plan: SelectPlan, start: int) -> list[JoinStep]:
    """Return the order in which a row of one input is joined with the other inputs."""
    bound, steps = {start}, []
    waiting = [source for source in range(len(plan.inputs)) if source != start]
    while waiting:
        source = min(waiting, key=lambda candidate: _rank_source(plan, bound, candidate))
        pairs = [*_find_equalities(plan, bound, source)]
        joined = {*bound, source}
        # Conditions on a single source are tested when a row of this source arrives.
        tests = [test for test in plan.where if len(find_read_sources(test)) > 1 and find_read_sources(test) <= joined]
        tests = [test for test in tests if not find_read_sources(test) <= bound]
        steps.append(JoinStep(source, tuple(key for key, _ in pairs), tuple(probe for _, probe in pairs), tuple(tests)))
        bound = joined
        waiting.remove(source)
    return steps


def _rank_source(plan: SelectPlan, bound: set[int], source: int) -> tuple[bool, bool, int]:
    window = plan.inputs[source].window
    is_now = window is not None and window.kind == "now"
    return not is_now, not [*_find_equalities(plan, bound, source)], source


def _find_equalities(plan: SelectPlan, bound: set[int], source: int) -> Iterator[tuple[Expression, Expression]]:
    """Yield the equal expressions of conditions that connect a source with the sources joined before it."""
    for test in plan.where:
        if test.op == "=":
            for left, right in (test.args, test.args[::-1]):
                if (
                    find_read_sources(left) == {source}
                    and find_read_sources(right)
                    and find_read_sources(right) <= bound
                ):
                    yield left, right


def find_read_sources(expression: Expression) -> set[int]:
    """Return the sources whose columns an expression reads."""
    return {part.source for part in expression.columns()}
