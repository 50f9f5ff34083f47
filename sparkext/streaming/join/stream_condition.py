"""The condition of a join of two streams, on names, on Columns or by a function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sparkext.joins.join_condition import JoinCondition, read_condition
from sparkext.joins.resolved_join import ResolvedJoin, resolve_join
from sparkext.joins.resolved_theta import resolve_theta
from sparkext.plans.pipeline.spec import MOST_COMPARED
from sparkext.spark.frames import is_column
from sparkext.streaming.arguments import JoinedStreams
from sparkext.streaming.join.column_condition import ColumnCondition, read_columns
from sparkext.streaming.join.description_of import renumber_build_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StreamCondition(ABC):
    """A condition of two streams."""

    streams: JoinedStreams

    @property
    def texts(self) -> tuple[str, ...]:
        """The parts of the join's fingerprint that its columns do not show."""
        return ()

    @abstractmethod
    def resolve(self, kind: str, problems: list[str]) -> ResolvedJoin | None:
        """Return the join of the streams, None if `problems` got longer."""

    def where(self, pairs: DataFrame) -> DataFrame:
        """Return the pairs that satisfy the parts of the condition that the join does not test."""
        return pairs


def read_stream_condition(
    streams: JoinedStreams | None, on: Any, kind: str | None, how: Any, problems: list[str]
) -> StreamCondition | None:
    """Return the condition, or None if `problems` got longer or there are no `streams`."""
    if is_column(on):
        columns = None if streams is None else read_columns(streams.left, streams.right, on, kind or "inner", problems)
        if streams is None or columns is None:
            return None
        return _OnColumns(replace(streams, left=columns.left, right=columns.right), columns.names, columns)
    if callable(on):
        return None if streams is None else _ByFunction(streams, on)
    names = read_condition(on, kind, how, problems)
    return None if streams is None or names is None else _OnNames(streams, names)


@dataclass(frozen=True)
class _ByFunction(StreamCondition):
    """A Python function of two rows, for inner joins."""

    function: Any

    def resolve(self, kind: str, problems: list[str]) -> ResolvedJoin | None:
        return resolve_theta(self.streams.inputs(), self.function, "inner", problems)


@dataclass(frozen=True)
class _OnNames(StreamCondition):
    """Equalities and comparisons of columns, which indexes of both sides have to support."""

    names: JoinCondition

    def resolve(self, kind: str, problems: list[str]) -> ResolvedJoin | None:
        found = resolve_join(self.streams.inputs(), self.names, kind, problems)
        compared = set() if found is None else {(pair.probe.column, pair.type) for pair in found.spec.ranges}
        if len(compared) > MOST_COMPARED:
            problems.append(
                f"on compares {len(compared)} columns of the left side, whose rows are indexed as well, but an index"
                f" supports at most {MOST_COMPARED}. Filter the result of an inner join by the other columns"
            )
        return None if found is None else renumber_build_columns(found)


@dataclass(frozen=True)
class _OnColumns(_OnNames):
    """A condition on Columns. Its streams are filtered, and have columns of computed values."""

    columns: ColumnCondition

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.columns.text,)

    def resolve(self, kind: str, problems: list[str]) -> ResolvedJoin | None:
        resolved = super().resolve(kind, problems)
        return None if resolved is None else self.columns.hide_computed(resolved)

    def where(self, pairs: DataFrame) -> DataFrame:
        return self.columns.where(pairs)
