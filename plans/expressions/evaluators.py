"""The evaluators of expressions in workers, and the part of the language that each covers.

    ARROW       whole columns at a time: filters of scans, conditions on found pairs, computed columns
    COMPILED    numbers, pair by pair, in code generated for the expression: conditions on all pairs, or on found pairs

The jar contains this table, which the planner consults before it sends an expression to workers
(`WorkerEvaluator.scala`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkext.plans.expressions.expression import (
    CASES,
    CHOICES,
    DATE_FIELDS,
    DATE_FUNCTIONS,
    DECIMAL_ARITHMETIC,
    DECIMAL_CASTS,
    LEAVES,
    LOGIC,
    NAN_TESTS,
    NUMERIC,
    REMAINDERS,
    ROUNDINGS,
    STRING_TESTS,
    TRIMS,
    WHOLE_NUMBERS,
    Expression,
)
from sparkext.plans.expressions.key_types import KEY_TYPE_NAMES, MOST_DECIMAL_DIGITS
from sparkext.plans.expressions.number_types import MOST_DIGITS, NUMBER_TYPES, WORDS


@dataclass(frozen=True)
class Evaluator:
    """An evaluator of these `operators` on values of these `types`, with decimals of up to `digits` digits.

    `any_null`: columns of all other types can be tested for null.
    """

    name: str
    operators: tuple[str, ...]
    types: tuple[str, ...]
    digits: int
    any_null: bool = False

    def find_uncovered(self, node: Expression) -> Expression | None:
        """Return a subexpression that is not covered, or None if all are."""
        if not self._runs(node):
            return node
        any_null = self.any_null and node.op == "is_null"
        arguments = (argument for argument in node.args if not (any_null and argument.op == "column"))
        return next((part for part in map(self.find_uncovered, arguments) if part is not None), None)

    def _runs(self, node: Expression) -> bool:
        kind = node.type
        # Legacy decimals may have a negative scale: their digits count tens or hundreds.
        is_covered = kind is not None and kind.name in self.types and kind.precision <= self.digits and kind.scale >= 0
        return node.op in self.operators and is_covered

    def check(self, node: Expression) -> Expression:
        """Return the expression. Raises `ValueError` if it is not covered."""
        part = self.find_uncovered(node)
        if part is not None:
            raise ValueError(f"{part.op} of {part.type} is not covered by {self.name}: {node!r}")
        return node


_EVERYWHERE = (*LEAVES, *LOGIC, *CHOICES, *NUMERIC)
_DECIMALS = (*DECIMAL_ARITHMETIC, *DECIMAL_CASTS)
_NUMBERS = (*REMAINDERS, *ROUNDINGS, *WHOLE_NUMBERS, *NAN_TESTS)
_TEXTS = (*STRING_TESTS, "substring", "length", "concat", *TRIMS, *CASES)
ARROW = Evaluator(
    "arrow",
    (*_EVERYWHERE, *_DECIMALS, *_NUMBERS, *_TEXTS, *DATE_FIELDS, *DATE_FUNCTIONS),
    KEY_TYPE_NAMES,
    MOST_DECIMAL_DIGITS,
    any_null=True,
)
COMPILED = Evaluator("compiled", _EVERYWHERE, (*NUMBER_TYPES, *WORDS, "decimal"), MOST_DIGITS)
EVALUATORS = (ARROW, COMPILED)
