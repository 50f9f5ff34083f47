"""The condition of a join of two streams, on names or by a function; `column_condition` has conditions on Columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkext.joins.join_condition import JoinCondition
from sparkext.joins.resolved_join import ResolvedJoin, resolve_join
from sparkext.joins.resolved_theta import resolve_theta
from sparkext.plans.pipeline.spec import MOST_COMPARED
from sparkext.streaming.arguments import JoinedStreams
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


@dataclass(frozen=True)
class FunctionCondition(StreamCondition):
    """A Python function of two rows, for inner joins."""

    function: Any

    def resolve(self, kind: str, problems: list[str]) -> ResolvedJoin | None:
        """Compile the function."""
        return resolve_theta(self.streams.inputs(), self.function, "inner", problems)


@dataclass(frozen=True)
class NameCondition(StreamCondition):
    """Equalities and comparisons of columns, which indexes of both sides have to support."""

    names: JoinCondition

    def resolve(self, kind: str, problems: list[str]) -> ResolvedJoin | None:
        """Resolve the columns."""
        resolved = resolve_join(self.streams.inputs(), self.names, kind, problems)
        compared = set() if resolved is None else {(pair.probe.column, pair.type) for pair in resolved.spec.ranges}
        if len(compared) > MOST_COMPARED:
            problems.append(
                f"on compares {len(compared)} columns of the left side, whose rows are indexed as well, but an index"
                f" supports at most {MOST_COMPARED}. Filter the result of an inner join by the other columns"
            )
        return None if resolved is None else renumber_build_columns(resolved)
