"""What is made of the rows that a pipeline emits before they are kept, as plain data.

    {"filter": expression or null, "columns": [expression, ...]}

Expressions name source 0 and a position among the columns that the pipeline emits. A column that is kept as it is may
be of any type, and then names none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkext.plans.evaluators import ARROW
from sparkext.plans.expression import Expression, parse_expression


@dataclass(frozen=True)
class Projection:
    """Columns of those rows for which `filter` is true.

    Raises
    ------
    ValueError
        It means nothing.
    """

    filter: Expression | None
    columns: tuple[Expression, ...]

    def __post_init__(self) -> None:
        """Refuse what no evaluator computes."""
        computed = (column for column in self.columns if column.op != "column")
        for expression in (*computed, *(() if self.filter is None else (self.filter,))):
            ARROW.check(expression)


def parse_projection(data: Mapping[str, Any]) -> Projection:
    """Read the JSON form. Raises `ValueError`."""
    kept = data.get("filter")
    return Projection(
        None if kept is None else parse_expression(kept), tuple(parse_expression(column) for column in data["columns"])
    )
