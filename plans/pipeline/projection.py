"""A filter and computed columns, applied to the rows that a pipeline emits before they are stored; as plain data.

    {"filter": expression or null, "columns": [expression, ...]}

Expressions refer to source 0, by positions among the columns that the pipeline emits. A column that is passed on
unchanged may have any type, and then its type may be null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkext.plans.expressions.evaluators import ARROW
from sparkext.plans.expressions.expression import Expression, parse_expression


@dataclass(frozen=True)
class Projection:
    """Columns of the rows for which `filter` is true.

    Raises
    ------
    ValueError
        No evaluator covers an expression.
    """

    filter: Expression | None
    columns: tuple[Expression, ...]

    def __post_init__(self) -> None:
        """Refuse expressions that no evaluator covers."""
        computed = (column for column in self.columns if column.op != "column")
        for expression in (*computed, *(() if self.filter is None else (self.filter,))):
            ARROW.check(expression)


def parse_projection(data: Mapping[str, Any]) -> Projection:
    """Read the JSON form. Raises `ValueError`."""
    filter_data = data.get("filter")
    return Projection(
        None if filter_data is None else parse_expression(filter_data),
        tuple(parse_expression(column) for column in data["columns"]),
    )
