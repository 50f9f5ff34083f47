"""Groupings of a pipeline's rows and their aggregate functions, as plain data.

    {
      "keys": [expression, ...],
      "calls": [{"function": name, "argument": expression or null, "checked": bool, "ignore_nulls": bool}, ...],
      "whole": bool
    }

A pipeline may have several groupings: for grouping sets, and for aggregates of distinct values. A grouping that ignores
a key has a literal in its place.

The output has one row per group: the keys, then the *buffers* of each call. These are the buffers of Spark's own
partial aggregates (a sum and whether it is empty, a sum and a count, ...), which Spark's final aggregate merges. A
group may be emitted more than once, unless `whole` is set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkext.plans.expressions.evaluators import ARROW
from sparkext.plans.expressions.expression import Expression, parse_expression
from sparkext.plans.expressions.key_types import KEY_TYPE_NAMES
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS

_NUMBERS = (*INTEGERS, *FLOATS, "decimal")
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "count": KEY_TYPE_NAMES,
    "sum": _NUMBERS,
    "avg": _NUMBERS,
    "min": KEY_TYPE_NAMES,
    "max": KEY_TYPE_NAMES,
    "first": KEY_TYPE_NAMES,
    "last": KEY_TYPE_NAMES,
    **dict.fromkeys(("stddev_samp", "stddev_pop", "var_samp", "var_pop"), ("float64",)),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor"), INTEGERS),
}
"""The functions, and the argument types of each."""


@dataclass(frozen=True)
class AggregateCall:
    """One function over the rows of a group.

    `argument`: the aggregated expression; None for a count of rows. `checked`: an overflowing sum of integers is an
    error, as in Spark's ANSI mode. `ignore_nulls`: `first` and `last` skip nulls, as all other functions always do.

    Raises
    ------
    ValueError
        There is no such function, or none for an argument of this type.
    """

    function: str
    argument: Expression | None
    checked: bool = False
    ignore_nulls: bool = False

    def __post_init__(self) -> None:
        """Refuse calls that no accumulator computes."""
        argument_types = FUNCTIONS.get(self.function, ())
        fits = self.function == "count" if self.argument is None else _name(self.argument) in argument_types
        if not fits:
            raise ValueError(f"not an aggregate: {self!r}")
        if self.argument is not None:
            ARROW.check(self.argument)

    @property
    def in_order(self) -> bool:
        """Whether the result depends on the order of the rows."""
        return self.function in ("first", "last")

    def like(self, other: AggregateCall) -> bool:
        """Whether both have the same buffers."""
        return self._identify_buffers() == other._identify_buffers()

    def _identify_buffers(self) -> tuple[object, ...]:
        argument = None if self.argument is None else self.argument.type
        return self.function, argument, self.checked, self.ignore_nulls


@dataclass(frozen=True)
class Aggregation:
    """The group keys and the aggregate calls. Without keys, all rows are one group.

    `whole`: each group is emitted once, aggregated over all of its rows.
    """

    keys: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]
    whole: bool = False

    def __post_init__(self) -> None:
        """Refuse keys that no evaluator computes. Raises `ValueError`."""
        for key in self.keys:
            ARROW.check(key)

    @property
    def in_order(self) -> bool:
        """Whether the result depends on the order of the rows."""
        return any(call.in_order for call in self.calls)

    def expressions(self) -> Iterator[Expression]:
        """Yield the expressions that are evaluated for each row."""
        yield from self.keys
        yield from (call.argument for call in self.calls if call.argument is not None)

    def like(self, other: Aggregation) -> bool:
        """Whether both emit the same columns, with the same meaning."""
        return (
            [key.type for key in self.keys] == [key.type for key in other.keys]
            and len(self.calls) == len(other.calls)
            and all(map(AggregateCall.like, self.calls, other.calls))
        )


def parse_aggregation(data: Mapping[str, Any]) -> Aggregation:
    """Read the JSON form. Raises `ValueError`."""
    return Aggregation(
        tuple(parse_expression(key) for key in data["keys"]),
        tuple(
            AggregateCall(
                call["function"],
                None if call["argument"] is None else parse_expression(call["argument"]),
                call["checked"],
                call["ignore_nulls"],
            )
            for call in data["calls"]
        ),
        data.get("whole", False),
    )


def _name(expression: Expression) -> str:
    return "" if expression.type is None else expression.type.name
