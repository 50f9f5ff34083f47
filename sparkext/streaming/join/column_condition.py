"""A condition on Columns, split into comparisons for an index, filters of one side, and remaining conjuncts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkext.joins.join_condition import NULL_SAFE, JoinCondition, NamedPair, NamedRange
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.plans.expressions.key_types import common_key_type
from sparkext.plans.pipeline.spec import MIRRORED, MOST_COMPARED, RANGE_OPERATORS
from sparkext.plans.shuffle.fragments import LEFT, RIGHT
from sparkext.rows.types import spark_key_type
from sparkext.spark.catalyst import AnalysedJoin, arguments_of, name_of
from sparkext.streaming.arguments import JoinedStreams
from sparkext.streaming.join.stream_condition import NameCondition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_OPERATORS = {
    "EqualTo": "=",
    "EqualNullSafe": NULL_SAFE,
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_COMPUTED = "__sparkext_compared_"


@dataclass(frozen=True)
class ColumnCondition(NameCondition):
    """A join of two DataFrames on Columns, reduced to a join on column names.

    The streams are filtered by the conjuncts that read only one side. Compared values that are no column have been
    appended as computed columns. `text` is the whole condition.
    """

    text: str
    _join: AnalysedJoin
    _rest: tuple[Any, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The whole condition, whose filters the columns do not show."""
        return (self.text,)

    def resolve(self, kind: str, problems: list[str]) -> ResolvedJoin | None:
        """Resolve the columns. The computed columns are not in the result."""
        resolved = super().resolve(kind, problems)
        if resolved is None:
            return None
        outputs = tuple(out for out in resolved.outputs if not out.field.name.startswith(_COMPUTED))
        return replace(resolved, outputs=outputs)

    def where(self, pairs: DataFrame) -> DataFrame:
        """Return the pairs that satisfy the remaining conjuncts."""
        return self._join.where(pairs, self._rest)


def read_columns(streams: JoinedStreams, condition: Column, kind: str, problems: list[str]) -> ColumnCondition | None:
    """Split a condition; return None if `problems` got longer."""
    from pyspark.errors import AnalysisException

    try:
        join = AnalysedJoin(streams.left, streams.right, condition)
    except AnalysisException as error:
        problems.append(f"on={condition}: {str(error).splitlines()[0]}")
        return None
    parts = _ConditionParts(join, kind)
    for conjunct in join.conjuncts:
        parts.take(conjunct)
    text = " AND ".join(conjunct.sql() for conjunct in join.conjuncts)
    if not parts.pairs and not parts.ranges:
        problems.append(
            f"on={text}: no part of it compares a value of the left side with a value of the right side by =, <=>, <,"
            " <=, > or >=, so all pairs of rows would be evaluated. Add such a comparison with &, or join by a function"
            " of two rows, as in theta_join"
        )
        return None
    if kind != "inner" and parts.rest:
        rest = " AND ".join(conjunct.sql() for conjunct in parts.rest)
        problems.append(
            f"how={kind!r}: {rest} is supported only for inner joins. Other joins of streams only compare values of the"
            " left side with values of the right side, by =, <=>, <, <=, > or >="
        )
        return None
    names = JoinCondition(tuple(parts.pairs), using=False, ranges=tuple(parts.ranges))
    filtered = replace(streams, left=parts.frame(LEFT), right=parts.frame(RIGHT))
    return ColumnCondition(filtered, names, text, join, tuple(parts.rest))


class _ConditionParts:
    """Assigns each conjunct to the index, to a filter of one side, or to the rest."""

    def __init__(self, join: AnalysedJoin, kind: str) -> None:
        self.pairs: list[NamedPair] = []
        self.ranges: list[NamedRange] = []
        self.rest: list[Any] = []
        self._join, self._kind = join, kind
        self._filters: tuple[list[Any], list[Any]] = ([], [])
        self._ordered: list[set[Any]] = [set(), set()]
        self._computed: tuple[dict[Any, tuple[str, Column]], dict[Any, tuple[str, Column]]] = ({}, {})

    def take(self, conjunct: Any) -> None:
        """Assign one conjunct."""
        sides = self._join.find_sides(conjunct)
        if len(sides) == 1 and (self._kind != "left" or sides == {RIGHT}):
            self._filters[sides.pop()].append(conjunct)
        elif not self._add_comparison(conjunct):
            self.rest.append(conjunct)

    def frame(self, side: int) -> DataFrame:
        """Return a side, filtered and with its computed columns appended."""
        frame: DataFrame = self._join.sides[side]
        for conjunct in self._filters[side]:
            frame = frame.where(self._join.column(conjunct))
        computed = self._computed[side].values()
        return frame.select("*", *(column.alias(name) for name, column in computed)) if computed else frame

    def _add_comparison(self, conjunct: Any) -> bool:
        """Add a comparison of a left and a right value to the index; return False if no index supports it."""
        operator = _OPERATORS.get(name_of(conjunct))
        if operator is None:
            return False
        left, right = arguments_of(conjunct)
        if self._join.find_sides(left) == {RIGHT}:
            left, right, operator = right, left, MIRRORED.get(operator, operator)
        values = (left, right)
        if any(self._join.find_sides(value) != {side} for side, value in enumerate(values)):
            return False
        if not self._are_comparable(values):
            return False
        if operator in RANGE_OPERATORS:
            if not self._add_ordered_values(values):
                return False
            self.ranges.append(NamedRange(self._name_value(LEFT, left), operator, self._name_value(RIGHT, right)))
        else:
            self.pairs.append(
                NamedPair(self._name_value(LEFT, left), self._name_value(RIGHT, right), operator == NULL_SAFE)
            )
        return True

    def _add_ordered_values(self, values: Sequence[Any]) -> bool:
        """Add two values to be compared by order; return False if one side would have more than `MOST_COMPARED`."""
        ordered = [earlier | {value.canonicalized()} for earlier, value in zip(self._ordered, values, strict=True)]
        if max(map(len, ordered)) > MOST_COMPARED:
            return False
        self._ordered = ordered
        return True

    def _are_comparable(self, values: Sequence[Any]) -> bool:
        """Return whether an index compares values of these two types as Spark does."""
        columns = [self._join.sides[side].select(self._join.column(value)) for side, value in enumerate(values)]
        left, right = (spark_key_type(frame.schema.fields[0]) for frame in columns)
        return left is not None and right is not None and common_key_type(left, right) is not None

    def _name_value(self, side: int, value: Any) -> str:
        """Return the name of a column with this value, computed if the side has none."""
        names = self._join.sides[side].columns
        position = self._join.position(side, value)
        if position is not None and [name.lower() for name in names].count(names[position].lower()) == 1:
            return names[position]
        computed = self._computed[side]
        computed_column = (f"{_COMPUTED}{side}_{len(computed)}", self._join.column(value))
        return computed.setdefault(value.canonicalized(), computed_column)[0]
