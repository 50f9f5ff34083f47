"""A pipeline as plain data: its joins in order, their keys, and the source of every output column.

The driver sends a spec to workers, which interpret it: pickled by Python, as JSON by the JVM.

Sources are numbered: source 0 is the probe side, source k the build side of join k - 1. A column reference names a
source and a column's position in it. The key column of a full outer join with USING is taken from either side, which
`otherwise` expresses (Spark's `coalesce(left, right)`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sparkext.plans.expressions.evaluators import ARROW, COMPILED
from sparkext.plans.expressions.expression import Expression, parse_expression
from sparkext.plans.pipeline.aggregates import Aggregation, parse_aggregation
from sparkext.plans.pipeline.theta import PythonPredicate, Theta
from sparkext.plans.pipeline.top import Top, parse_top

SPEC_VERSION = 1
PROBE = 0

MARKS = -1
"""Value of the first owner column in a row that another task joins. In this task, the row only marks matching build
rows."""

JOIN_KINDS = ("inner", "left", "right", "full", "semi", "anti", "existence")
"""`existence` emits every probe row once; column 0 of its build side is a flag, whether the row found a match."""

RANGE_OPERATORS = ("<", "<=", ">", ">=")
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator after its sides are exchanged."""

DIRECTIONS = ("backward", "forward", "nearest")
MOST_COMPARED = 2

BUILD_PRESERVING = ("right", "full")
"""Kinds that emit unmatched build rows: only the first join of a pipeline can have such a kind."""


@dataclass(frozen=True)
class ColumnRef:
    """Column number `column` of source number `source`.

    If `otherwise` is given, it replaces nulls of the column, and both are converted to the key type `type` (see
    `plans.expressions.key_types`).
    """

    source: int
    column: int
    otherwise: ColumnRef | None = None
    type: str | None = None

    def __post_init__(self) -> None:
        """Refuse `otherwise` without a common type, and a type without `otherwise`."""
        if (self.otherwise is None) != (self.type is None):
            raise ValueError("otherwise and type go together")

    def references(self) -> Iterator[tuple[int, int]]:
        """Yield (source, column) of this reference and of its alternative."""
        yield self.source, self.column
        if self.otherwise is not None:
            yield from self.otherwise.references()


@dataclass(frozen=True)
class KeyPair:
    """One equality of a join: a column of an earlier source, and a column of the build side.

    Both are compared as `type` (see `plans.expressions.key_types`); with `null_safe`, null equals null.
    """

    probe: ColumnRef
    build: int
    type: str
    null_safe: bool


@dataclass(frozen=True)
class RangePair:
    """One comparison of a range join: `probe op build`, both as `type`. Null compares with nothing."""

    probe: ColumnRef
    op: str
    build: int
    type: str

    def __post_init__(self) -> None:
        """Refuse operators that no index supports."""
        if self.op not in RANGE_OPERATORS:
            raise ValueError(f"not a comparison of a range join: {self.op!r}")


@dataclass(frozen=True)
class AsOf:
    """The comparison of an as-of join: the build row with equal keys whose column `build` is nearest to `probe`.

    Both are compared as `type`. `direction`: `backward` (not after the probe's value), `forward` (not before it) or
    `nearest`. `exact`: equal values may match. `tolerance`: the largest distance, in units of the type (days,
    microseconds, unscaled decimals); None for no limit. Among build rows of equal value, the last row matches in
    backward direction and the first one in forward direction. At equal distances in both directions, the backward row
    matches.
    """

    probe: ColumnRef
    build: int
    type: str
    direction: str
    exact: bool = True
    tolerance: int | float | None = None

    def __post_init__(self) -> None:
        """Refuse unknown directions."""
        if self.direction not in DIRECTIONS:
            raise ValueError(f"not a direction of an as-of join: {self.direction!r}")


@dataclass(frozen=True)
class JoinSpec:
    """One join. Without keys, ranges or as-of, every probe row matches every build row. `label` is text for people.

    `ranges` compare at most two columns of the build side, each in one type. `condition` and `theta` have to hold for a
    pair in addition to its keys: Arrow evaluates `condition`, and `theta` is compiled. They may refer to columns of all
    earlier sources and of the build side. `probe_ordered`: probe rows are known to be in the order of the only key.
    `guard`: set if some condition may fail on pairs that the ranges skip; it has all conditions up to the last such
    condition.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {"label": "for people"}

    how: str
    keys: tuple[KeyPair, ...]
    algorithm: str
    label: str
    condition: Expression | None = None
    ranges: tuple[RangePair, ...] = ()
    as_of: AsOf | None = None
    theta: Theta | None = None
    probe_ordered: bool = False
    guard: Expression | None = None

    def __post_init__(self) -> None:
        """Refuse joins that no operator runs."""
        if self.how not in JOIN_KINDS:
            raise ValueError(f"not a join kind: {self.how!r}")
        conditional = self.condition is not None or self.theta is not None
        if len(self.compared) > MOST_COMPARED:
            raise ValueError(f"a range join compares at most {MOST_COMPARED} columns of its build side")
        if self.as_of is not None and (self.ranges or conditional or self.how not in ("inner", "left")):
            raise ValueError("an as-of join is an inner or a left join, without further comparisons")
        for evaluator, test in ((ARROW, self.condition), (COMPILED, self.theta), (COMPILED, self.guard)):
            if isinstance(test, Expression):
                evaluator.check(test)

    @property
    def preserves_build(self) -> bool:
        """Whether unmatched build rows are emitted."""
        return self.how in BUILD_PRESERVING

    @property
    def drops_unmatched(self) -> bool:
        """Whether probe rows without a match are dropped."""
        return self.how in ("inner", "semi")

    @property
    def tests_keys(self) -> bool:
        """Whether the join only tests which keys the build side has."""
        tests = (self.condition, self.theta, self.guard)
        has_other_tests = self.ranges or self.as_of is not None or any(test is not None for test in tests)
        return self.how in ("semi", "anti", "existence") and bool(self.keys) and not has_other_tests

    @property
    def nested(self) -> bool:
        """Whether every pair has to be tried, as there are no keys or ranges to look rows up by."""
        return self.theta is not None and not self.keys and not self.ranges

    @property
    def may_fail(self) -> bool:
        """Whether an error of a condition may fail the query."""
        return any(test.may_fail for test in (self.theta, self.guard) if isinstance(test, Expression))

    def references(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield (source, column) of every value that is fetched by row. The build side is source `number`."""
        compared = (*self.keys, *self.ranges, *(() if self.as_of is None else (self.as_of,)))
        for pair in compared:
            yield from pair.probe.references()
        for test in (self.condition, self.theta, self.guard):
            if isinstance(test, Expression):
                yield from ((node.source, node.column) for node in test.columns())
        if isinstance(self.theta, PythonPredicate):
            yield from ((column.source, column.column) for column in self.theta.probe)
            yield from ((number, column.column) for column in self.theta.build)

    @property
    def compared(self) -> tuple[tuple[int, str], ...]:
        """The build columns that are compared, each with the type of the comparison.

        The index is ordered by the first of them: a column that is bounded on both sides, if there is one.
        """
        if self.as_of is not None:
            return ((self.as_of.build, self.as_of.type),)
        operators: dict[tuple[int, str], set[str]] = {}
        for pair in self.ranges:
            operators.setdefault((pair.build, pair.type), set()).add(pair.op[0])
        return tuple(sorted(operators, key=lambda column: -len(operators[column])))


@dataclass(frozen=True)
class PipelineSpec:
    """A chain of joins over one probe side.

    `probe_columns` is the number of columns of the probe side. If the first join preserves build rows, each input batch
    has rows of several kinds and `owner_columns` leading columns. The first of these columns is the id of a build row
    that this task owns, or null for a probe row, or `MARKS`; the other columns were only needed to route equal keys to
    one task. With `owned_by`, the first column is the index of a part instead: the task owns all build rows that have
    this index in column `owned_by` of the first build side.
    `filter` has to hold for a row that the joins emit. With `aggregations`, the pipeline emits groups and no `outputs`:
    the groups of each aggregation, in the same columns. With `top`, it need only emit the first rows of each task.

    Raises
    ------
    ValueError
        The parts of the spec contradict each other.
    """

    probe_columns: int
    joins: tuple[JoinSpec, ...]
    outputs: tuple[ColumnRef, ...]
    owner_columns: int = 0
    owned_by: int | None = None
    filter: Expression | None = None
    aggregations: tuple[Aggregation, ...] = ()
    top: Top | None = None

    def __post_init__(self) -> None:
        """Refuse specs that no pipeline runs."""
        if self.filter is not None:
            ARROW.check(self.filter)
        if self.aggregations and self.outputs:
            raise ValueError("groups come out, or rows")
        if self.top is not None and not all(
            0 <= order_column.output < len(self.outputs) for order_column in self.top.order
        ):
            raise ValueError(f"rows of {len(self.outputs)} columns cannot be ordered by {self.top.order}")
        if not all(aggregation.like(self.aggregations[0]) for aggregation in self.aggregations):
            raise ValueError("not all aggregations emit the same columns")

    def then(self, join: JoinSpec, outputs: tuple[ColumnRef, ...]) -> PipelineSpec:
        """Return the pipeline with one more join appended."""
        return replace(self, joins=(*self.joins, join), outputs=outputs)

    def gathered(self, source: int) -> tuple[int, ...]:
        """Return the columns of a source that are fetched by row. The join's own index may use further columns."""
        return tuple(sorted({column for number, column in self._references() if number == source}))

    def _references(self) -> Iterator[tuple[int, int]]:
        for output in self.outputs:
            yield from output.references()
        if self.owned_by is not None:
            yield 1, self.owned_by
        computed = (expression for aggregation in self.aggregations for expression in aggregation.expressions())
        for expression in (*computed, *(() if self.filter is None else (self.filter,))):
            yield from ((node.source, node.column) for node in expression.columns())
        for number, join in enumerate(self.joins, 1):
            yield from join.references(number)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> PipelineSpec:
        """Read the JSON form, which the JVM writes. Raises `ValueError` for another version."""
        version = data.get("version")
        if version != SPEC_VERSION:
            raise ValueError(f"pipeline spec of version {version}, expected {SPEC_VERSION}")
        return cls(
            probe_columns=data["probe_columns"],
            joins=tuple(_parse_join(join) for join in data["joins"]),
            outputs=tuple(_parse_reference(output) for output in data["outputs"]),
            owner_columns=data["owner_columns"],
            owned_by=data.get("owned_by"),
            filter=None if (filter_data := data.get("filter")) is None else parse_expression(filter_data),
            aggregations=tuple(map(parse_aggregation, data["aggregations"])),
            top=None if (top_data := data.get("top")) is None else parse_top(top_data),
        )


def _parse_reference(data: Mapping[str, Any]) -> ColumnRef:
    otherwise = data["otherwise"]
    return ColumnRef(
        data["source"], data["column"], None if otherwise is None else _parse_reference(otherwise), data["type"]
    )


def _parse_join(data: Mapping[str, Any]) -> JoinSpec:
    keys = tuple(KeyPair(**{**key, "probe": _parse_reference(key["probe"])}) for key in data["keys"])
    ranges = tuple(RangePair(**{**pair, "probe": _parse_reference(pair["probe"])}) for pair in data.get("ranges", ()))
    as_of = data.get("as_of")
    condition, theta, guard = data.get("condition"), data.get("theta"), data.get("guard")
    return JoinSpec(
        data["how"],
        keys,
        data["algorithm"],
        data["label"],
        None if condition is None else parse_expression(condition),
        ranges,
        None if as_of is None else AsOf(**{**as_of, "probe": _parse_reference(as_of["probe"])}),
        None if theta is None else parse_expression(theta),
        data.get("probe_ordered", False),
        None if guard is None else parse_expression(guard),
    )
