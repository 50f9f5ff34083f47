"""What evaluates expressions in workers, and which part of their language each evaluator covers.

    ARROW       whole columns at a time, by Arrow's functions: filters of scans, conditions on found pairs
    COMPILED    numbers, pair by pair, in code that is made for the expression: conditions on all pairs, or on few

The table travels in the jar, where the planner asks it before it hands an expression on (`WorkerEvaluator.scala`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkext.plans.expression import ARITY, COMPARISONS, LEAVES, ORDERINGS, STRING_TESTS, VARIADIC, Expression
from sparkext.plans.key_types import KEY_TYPE_NAMES, MOST_DECIMAL_DIGITS
from sparkext.plans.number_types import FLOATS, MOST_DIGITS, NUMBER_TYPES, WORDS


@dataclass(frozen=True)
class Evaluator:
    """It runs these `operators` on values of these `types`, decimals of up to `digits`.

    Values of the types in `unordered` are equal or not, but never less or more. `any_null`: columns of all other types
    can be tested for null.
    """

    name: str
    operators: tuple[str, ...]
    types: tuple[str, ...]
    digits: int
    unordered: tuple[str, ...] = ()
    any_null: bool = False

    def uncovered(self, node: Expression) -> Expression | None:
        """Return a part that is not covered, if there is any."""
        if not self._runs(node):
            return node
        any_null = self.any_null and node.op == "is_null"
        looks_at = (argument for argument in node.args if not (any_null and argument.op == "column"))
        return next((part for part in map(self.uncovered, looks_at) if part is not None), None)

    def _runs(self, node: Expression) -> bool:
        orders = node.args if node.op in ORDERINGS else ()
        is_ordered = not any(self._is_of(argument, self.unordered) for argument in orders)
        return node.op in self.operators and self._is_of(node, self.types) and is_ordered

    def _is_of(self, node: Expression, types: tuple[str, ...]) -> bool:
        kind = node.type
        # Legacy decimals count tens and hundreds.
        return kind is not None and kind.name in types and kind.precision <= self.digits and kind.scale >= 0

    def check(self, node: Expression) -> Expression:
        """Return the expression. Raises `ValueError` if it is not covered."""
        part = self.uncovered(node)
        if part is not None:
            raise ValueError(f"{part.op} of {part.type} is not covered by {self.name}: {node!r}")
        return node


_EVERYWHERE = (*LEAVES, *COMPARISONS, "and", "or", "not", "is_null", "in")
ARROW = Evaluator(
    "arrow",
    (*_EVERYWHERE, *STRING_TESTS),
    # NaN is a value like any other to Spark, and none to Arrow.
    tuple(name for name in KEY_TYPE_NAMES if name not in FLOATS),
    MOST_DECIMAL_DIGITS,
    unordered=("bool",),
    any_null=True,
)
COMPILED = Evaluator(
    "compiled",
    tuple(op for op in (*LEAVES, *ARITY, *VARIADIC) if op not in STRING_TESTS),
    (*NUMBER_TYPES, *WORDS, "decimal"),
    MOST_DIGITS,
)
EVALUATORS = (ARROW, COMPILED)
