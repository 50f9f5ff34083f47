"""Generates code that evaluates expressions on words: see `expressions.expression_code`.

Values without a result in their type are null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sparkext.expressions.expression_code import ExpressionWriter, Step
from sparkext.kernels.indexes.nested_loop import Constant
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.number_types import FLOATS

_STRING = "string"


@dataclass(frozen=True)
class TextConstant:
    """A text constant, which an engine replaces by its code."""

    text: str


class WordExpressions(ExpressionWriter):
    """Writes expressions over rows; the row of source s is at address `as`, such as `a0`.

    `nullable(s, c)`: whether column c of source s may be null. `constants`: shared by all writers of a module.
    """

    def __init__(self, nullable: Callable[[int, int], bool], constants: list[Constant | TextConstant]) -> None:
        super().__init__()
        self._nullable = nullable
        self.constants = constants
        self._names = 0
        self._columns: dict[tuple[int, int], Step] = {}

    def taken(self) -> list[str]:
        """Return the lines written since the last call."""
        lines, self.lines = self.lines, []
        return lines

    def name(self) -> str:
        """See `ExpressionWriter`."""
        self._names += 1
        return f"v{self._names}"

    def number(self, node: Expression) -> str:
        """See `ExpressionWriter`: texts are codes."""
        return "int64" if node.type is not None and node.type.name == _STRING else node.number

    def compared(self, op: str, left: str, right: str, of: Expression) -> str:
        """See `ExpressionWriter`."""
        if self._is_text(of):
            return f"{left} == {right}" if op == "=" else f"compare_texts({left}, {right}, s, d) {op} 0"
        return super().compared(op, left, right, of)

    @staticmethod
    def _is_text(node: Expression) -> bool:
        return node.type is not None and node.type.name == _STRING

    def column(self, node: Expression) -> Step:
        """See `ExpressionWriter`."""
        source_column = node.source, node.column
        if source_column not in self._columns:
            word, known = _spell_word(node), None
            if self._nullable(*source_column):
                known = self._line(f"{_spell_null_bit(node)} == 0")
            self._columns[source_column] = Step(self._line(_spell_value(word, self.number(node))), known)
        return self._columns[source_column]

    def literal(self, node: Expression) -> Step:
        """See `ExpressionWriter`."""
        if not self._is_text(node):
            return super().literal(node)
        if node.text is None:
            return Step("np.int64(0)", "False")
        self.constants.append(TextConstant(node.text))
        return Step(f"c[{len(self.constants) - 1}]")

    def step(self, node: Expression) -> Step:
        """See `ExpressionWriter`: errors become null."""
        step = super().step(node)
        if step.error is None:
            return step
        fits = self._line(f"{step.error} == 0")
        return Step(step.value, self._all([step.known, fits]))

    def word(self, node: Expression) -> tuple[str, str | None]:
        """Return the code of a value's word, and the code of its null bit, None if the value is never null."""
        if node.op == "column":
            return _spell_word(node), _spell_null_bit(node) if self._nullable(node.source, node.column) else None
        step = self.step(node)
        kind = self.number(node)
        word = f"double_word(np.float64({step.value}))" if kind in FLOATS else f"np.int64({step.value})"
        if step.known is None:
            return self._line(word), None
        return self._line(f"{word} if {step.known} else np.int64(0)"), f"np.int64(not {step.known})"

    def key(self, node: Expression) -> tuple[str, str | None]:
        """Return the same as `word`, with -0.0 normalised to 0.0."""
        word, null = self.word(node)
        return (self._line(f"normal({word})") if self.number(node) in FLOATS else word), null


def _spell_word(column: Expression) -> str:
    return f"m[a{column.source} + {1 + column.column}]"


def _spell_null_bit(column: Expression) -> str:
    return f"((m[a{column.source}] >> {column.column}) & 1)"


def _spell_value(word: str, kind: str) -> str:
    if kind == "bool":
        return f"{word} != 0"
    if kind == "float64":
        return f"double_of({word})"
    return f"np.float32(double_of({word}))" if kind == "float32" else f"np.{kind}({word})"


def encode_constant(constant: Constant | TextConstant, code: Callable[[str], int]) -> Constant:
    """Return a constant in the form that generated code uses: a text as its code."""
    return np.int64(code(constant.text)) if isinstance(constant, TextConstant) else constant
