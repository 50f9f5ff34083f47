"""Translates an expression into the two functions that a nested loop compiles (see `kernels.indexes.nested_loop`).

    left.x + right.y > 10                   def load(p, i):
                                                return (p[0][i], p[1][i] != 0,)
                                   ──▶      def holds(p, c, b, j):
                                                v0 = b[0][j]
                                                v1 = np.int64(p[0]) + np.int64(v0)
                                                v2 = v1 > c[0]
                                                ...

Every step writes a line that computes its value. If needed, further lines compute whether the value is known (not
null), and the error that occurred. There are no branches, so that LLVM can vectorise the test over several pairs.

The text consists of operators of a closed list and of numbers that this module has written. Literals are arguments:
expressions that differ only in literals have equal texts, which are compiled once. Integer divisors are part of the
text, because LLVM replaces a division by a constant with a multiplication. The literals of an IN list are one array,
which is searched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sparkext.kernels.indexes.nested_loop import FAILED, Constant, is_among
from sparkext.kernels.runtime.intrinsics import multiply_overflows
from sparkext.kernels.runtime.jit import freeze
from sparkext.plans.expressions.expression import ARITHMETIC, COMPARISONS, ColumnPlace, Expression
from sparkext.plans.expressions.number_types import parse_unscaled

_DTYPES = {
    "bool": np.bool_,
    **{name: getattr(np, name) for name in ("int8", "int16", "int32", "int64", "float32", "float64")},
}
_SYMBOLS = {"=": "==", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_LOAD = "def load(p, i):\n    return ({values})\n"


class ColumnLocation(NamedTuple):
    """The location of a column in the arrays of its side. `mask` is None if the column has no nulls."""

    is_probe: bool
    values: int
    mask: int | None


@dataclass(frozen=True)
class Step:
    """The generated expressions of a node: its value, whether it is known (not null), and its error.

    `known` is None if the value is always known, `error` is None if the node cannot fail.
    """

    value: str
    known: str | None = None
    error: str | None = None


@dataclass(frozen=True)
class ExpressionCode:
    """The text of both functions, and the constants passed to them. Equal texts test equal array types."""

    text: str
    constants: tuple[Constant, ...]

    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return `load` and `holds`."""
        scope: dict[str, Any] = {"np": np, "multiply_overflows": multiply_overflows, "is_among": is_among}
        exec(compile(self.text, "<expression>", "exec"), scope)
        return scope["load"], scope["holds"]


def generate_expression_code(
    expression: Expression, locations: dict[ColumnPlace, ColumnLocation], probe_types: Sequence[str | None]
) -> ExpressionCode:
    """Generate both functions. `locations`: the location of each column.

    `probe_types`: the number type of each array of the probe side, None for a mask.
    """
    writer = _PairWriter(locations)
    result = writer.step(expression)
    verdict = f"np.uint8({_write_and(result.value, result.known)})" + (f" | ({result.error})" if result.error else "")
    lines = "".join(f"    {line}\n" for line in writer.lines)
    loads = [f"p[{k}][i]" + (" != 0" if kind in (None, "bool") else "") for k, kind in enumerate(probe_types)]
    text = f"{_LOAD.format(values=', '.join([*loads, '']))}def holds(p, c, b, j):\n{lines}    return {verdict}\n"
    return ExpressionCode(text, tuple(writer.constants))


class ExpressionWriter(ABC):
    """Generates code for expressions, step by step; subclasses define how columns are read."""

    def __init__(self) -> None:
        """Begin without lines."""
        self.lines: list[str] = []
        self.constants: list[Any] = []

    @abstractmethod
    def column(self, node: Expression) -> Step:
        """Return the step that reads a column."""
        ...

    def number(self, node: Expression) -> str:
        """Return the number type in which values of a node are compared."""
        return node.number

    def step(self, node: Expression) -> Step:
        """Write the lines that compute a node, and return its generated expressions."""
        if node.op == "column":
            return self.column(node)
        if node.op == "literal":
            return self.literal(node)
        if node.op in ("/", "%"):
            return self._divided(node, self.step(node.args[0]), self._divisor(node.args[1]))
        args = [self.step(argument) for argument in node.args]
        kind = self.number(node.args[0])
        if node.op in ARITHMETIC:
            return self._arithmetic(node, args[0], args[1])
        if node.op in ("negate", "abs"):
            return self._write_sign_change(node, args[0])
        if node.op == "<=>":
            return self._null_safe(args[0], args[1], kind)
        if node.op in COMPARISONS:
            return self._strict(self.compared(node.op, args[0].value, args[1].value, node.args[0]), *args)
        if node.op in ("and", "or"):
            return self._fold_steps(args, lambda left, right: self._connected(node.op, left, right))
        if node.op in ("least", "greatest"):
            return self._fold_steps(args, lambda left, right: self._extreme(node, left, right))
        if node.op == "coalesce":
            return self._fold_steps(args, self._first_known)
        if node.op == "if":
            return self._chosen(*args)
        (only,) = args
        if node.op == "in":
            return self._write_membership(node, only, kind)
        if node.op == "is_null":
            return Step("False" if only.known is None else self._line(f"not {only.known}"), None, only.error)
        if node.op == "not":
            return Step(self._line(f"not {only.value}"), only.known, only.error)
        if node.op == "sqrt":
            return Step(self._line(f"np.sqrt({only.value})"), only.known, only.error)
        return self._cast(node, only)

    def name(self) -> str:
        """Return a name for the result of the next line."""
        return f"v{len(self.lines)}"

    def compared(self, op: str, left: str, right: str, of: Expression) -> str:
        """Return the comparison of two values of the type of a node."""
        return _write_comparison(op, left, right, self.number(of))

    def _line(self, expression: str) -> str:
        name = self.name()
        self.lines.append(f"{name} = {expression}")
        return name

    def literal(self, node: Expression) -> Step:
        """Return the step of a literal: a constant, unless it is null."""
        if node.text is None:
            return Step(_write_cast(node.number, "0"), "False")
        self.constants.append(_parse_literal(node.text, node))
        return Step(f"c[{len(self.constants) - 1}]")

    def _write_membership(self, node: Expression, only: Step, kind: str) -> Step:
        """IN: true if the value is found, null if it is not and there is a null in the list."""
        literals = [_parse_literal(text, node.args[0]) for text in node.texts if text is not None]
        # `np.unique` keeps one of several equal numbers: either 0.0 or -0.0, and one NaN, at the end.
        self.constants.append(freeze(np.unique(np.array(literals, dtype=_DTYPES[kind]))))
        is_found = self._line(f"is_among({only.value}, c[{len(self.constants) - 1}])")
        return Step(is_found, self._all([only.known, is_found if None in node.texts else None]), only.error)

    def _divisor(self, node: Expression) -> Step:
        if node.op == "literal" and node.text is not None and not node.number.startswith("float"):
            return Step(_write_cast(node.number, str(int(node.text))))
        return self.step(node)

    def _strict(self, expression: str, left: Step, right: Step) -> Step:
        """Return the step of an operator that is null if any of its arguments is null."""
        known = self._all([left.known, right.known])
        return Step(self._line(expression), known, self._in_turn(left, left.known, right))

    def _all(self, conditions: Sequence[str | None]) -> str | None:
        terms = [condition for condition in dict.fromkeys(conditions) if condition is not None]
        return self._line(" & ".join(terms)) if len(terms) > 1 else next(iter(terms), None)

    def _errors(self, errors: Sequence[str | None]) -> str | None:
        terms = [error for error in errors if error is not None]
        return self._line(" | ".join(terms)) if len(terms) > 1 else next(iter(terms), None)

    def _in_turn(self, first: Step, condition: str | None, second: Step) -> str | None:
        """Return the error of two steps, of which the second is evaluated only if `condition` (None: always)."""
        error = second.error
        if error is not None and condition is not None:
            error = self._line(f"{error} if {condition} else np.uint8(0)")
        return self._errors([first.error, error])

    def _fails(self, condition: str, known: str | None) -> str:
        """Return the error of a step that fails if `condition` holds, unless the step is null."""
        return self._line(f"np.uint8({_write_and(condition, known)}) * np.uint8({FAILED})")

    def _arithmetic(self, node: Expression, left: Step, right: Step) -> Step:
        kind = node.number
        if kind.startswith("float"):
            return self._strict(f"{left.value} {node.op} {right.value}", left, right)
        if node.op != "*":
            # Decimals are rescaled to the scale of the result.
            left, right = (
                self._rescale(step, node.scale - argument.scale)
                for step, argument in zip((left, right), node.args, strict=True)
            )
        a, b = left.value, right.value
        wide = self._line(
            _write_wrapping(node.op, a, b) if kind == "int64" else f"np.int64({a}) {node.op} np.int64({b})"
        )
        result = self._strict(_write_cast(kind, wide), left, right)
        if not node.checked:
            return result
        if kind != "int64":
            limits = np.iinfo(kind)
            overflow = f"({wide} < {limits.min}) | ({wide} > {limits.max})"
        elif node.op == "*":
            overflow = f"multiply_overflows({a}, {b})"
        else:
            overflow = f"(({a} ^ {wide if node.op == '+' else b}) & ({b if node.op == '+' else a} ^ {wide})) < 0"
        failed = self._fails(f"({overflow})", result.known)
        return Step(result.value, result.known, self._errors([result.error, failed]))

    def _divided(self, node: Expression, left: Step, right: Step) -> Step:
        """Return a quotient, or a remainder with the sign of the dividend, as in Java."""
        a, b = left.value, right.value
        if node.op == "/":
            value = self._line(f"{a} / {b}")
        elif node.number.startswith("float"):
            value = self._line(f"np.fmod({a}, {b})")
        else:
            # 0 (no result) and -1 (the quotient may overflow, the remainder is 0) are replaced by 1.
            divisor = self._line(f"np.int64(1) if ({b} == 0) | ({b} == -1) else np.int64({b})")
            floored = self._line(f"np.int64({a}) % {divisor}")
            value = self._line(
                _write_cast(
                    node.number, f"({floored} - {divisor} if ({floored} != 0) & (({floored} ^ {a}) < 0) else {floored})"
                )
            )
        zero = self._line(f"{b} == 0")
        # Spark evaluates the divisor first.
        divides = right.known if node.checked else self._all([right.known, self._line(f"not {zero}")])
        known = self._all([left.known, divides])
        error = self._in_turn(right, divides, left)
        if node.checked:
            error = self._errors([error, self._fails(zero, known)])
        return Step(value, known, error)

    def _write_sign_change(self, node: Expression, only: Step) -> Step:
        value = self._line(_write_cast(node.number, _write_sign(node.op, only.value, node.number)))
        if not node.checked or node.number.startswith("float"):
            return Step(value, only.known, only.error)
        failed = self._fails(f"({only.value} == {np.iinfo(node.number).min})", only.known)
        return Step(value, only.known, self._errors([only.error, failed]))

    def _cast(self, node: Expression, only: Step) -> Step:
        """Cast numbers. A decimal becomes the quotient of two exact doubles: its unscaled digits and its unit."""
        (argument,) = node.args
        value = self._line(_write_cast(node.number, only.value))
        if node.number.startswith("float"):
            value = self._line(f"{value} / {float(10**argument.scale)}") if argument.scale else value
            return Step(value, only.known, only.error)
        return self._rescale(Step(value, only.known, only.error), node.scale - argument.scale)

    def _rescale(self, step: Step, places: int) -> Step:
        """Return the unscaled digits of a number with `places` more decimal places."""
        if places == 0:
            return step
        return Step(self._line(_write_wrapping("*", step.value, str(10**places))), step.known, step.error)

    def _null_safe(self, left: Step, right: Step, kind: str) -> Step:
        equal = _write_comparison("=", left.value, right.value, kind)
        error = self._errors([left.error, right.error])
        if left.known is None and right.known is None:
            return Step(self._line(equal), None, error)
        left_known, right_known = left.known or "True", right.known or "True"
        return Step(
            self._line(f"({left_known} & {right_known} & ({equal})) | ((not {left_known}) & (not {right_known}))"),
            None,
            error,
        )

    def _connected(self, op: str, left: Step, right: Step) -> Step:
        """AND and OR: the right operand is evaluated unless the left one decides the result."""
        decides, decided = ("not ", "&") if op == "and" else ("", "|")
        left_test, right_test = f"({decides}{left.value})", f"({decides}{right.value})"
        value = self._line(f"{left.value} {decided} {right.value}")
        left_decides = self._line(_write_and(left_test, left.known))
        error = self._in_turn(left, f"not {left_decides}", right)
        known = None
        if left.known is not None or right.known is not None:
            right_decides = self._line(_write_and(right_test, right.known))
            both_known = self._all([left.known, right.known])
            known = self._line(f"{both_known} | {left_decides} | {right_decides}")
            if op == "and":
                value = self._line(f"{value} & (not {left_decides}) & (not {right_decides})")
            else:
                value = self._line(f"{left_decides} | {right_decides}")
        return Step(value, known, error)

    def _extreme(self, node: Expression, left: Step, right: Step) -> Step:
        """LEAST and GREATEST, which ignore nulls."""
        better = self.compared("<" if node.op == "least" else ">", right.value, left.value, node)
        takes_right = better
        if left.known is not None:
            takes_right = f"(not {left.known}) | ({better})"
        value = self._line(f"{right.value} if {_write_and(f'({takes_right})', right.known)} else {left.value}")
        return Step(value, _write_or(left.known, right.known, self._line), self._errors([left.error, right.error]))

    def _first_known(self, left: Step, right: Step) -> Step:
        if left.known is None:
            return left
        value = self._line(f"{left.value} if {left.known} else {right.value}")
        error = self._in_turn(left, f"not {left.known}", right)
        return Step(value, _write_or(left.known, right.known, self._line), error)

    def _chosen(self, condition: Step, then: Step, otherwise: Step) -> Step:
        is_true = self._line(_write_and(condition.value, condition.known))
        value = self._line(f"{then.value} if {is_true} else {otherwise.value}")
        known = None
        if then.known is not None or otherwise.known is not None:
            known = self._line(f"{then.known or 'True'} if {is_true} else {otherwise.known or 'True'}")
        error = None
        if then.error is not None or otherwise.error is not None:
            error = self._line(f"{then.error or 'np.uint8(0)'} if {is_true} else {otherwise.error or 'np.uint8(0)'}")
        return Step(value, known, self._errors([condition.error, error]))

    @staticmethod
    def _fold_steps(args: Sequence[Step], combine: Callable[[Step, Step], Step]) -> Step:
        result = args[0]
        for argument in args[1:]:
            result = combine(result, argument)
        return result


class _PairWriter(ExpressionWriter):
    """Generates code for pairs of rows, one of each side."""

    def __init__(self, locations: dict[ColumnPlace, ColumnLocation]) -> None:
        super().__init__()
        self._locations = locations
        self._columns: dict[ColumnLocation, Step] = {}

    def column(self, node: Expression) -> Step:
        """See `ExpressionWriter`."""
        location = self._locations[node.place]
        if location not in self._columns:
            if location.is_probe:
                known = None if location.mask is None else f"p[{location.mask}]"
                self._columns[location] = Step(self._line(f"p[{location.values}]"), known)
            else:
                value = f"b[{location.values}][j]" + (" != 0" if node.number == "bool" else "")
                known = None if location.mask is None else self._line(f"b[{location.mask}][j] != 0")
                self._columns[location] = Step(self._line(value), known)
        return self._columns[location]


def _parse_literal(text: str, of: Expression) -> np.generic:
    """Return the value of a literal in the number type of an expression."""
    if of.number == "bool":
        return np.bool_(text == "true")
    number: np.generic = _DTYPES[of.number](parse_unscaled(text, of.scale) if of.scale else text)
    return number


def _write_and(condition: str, known: str | None) -> str:
    return condition if known is None else f"{condition} & {known}"


def _write_or(left: str | None, right: str | None, line: Callable[[str], str]) -> str | None:
    return None if left is None or right is None else line(f"{left} | {right}")


def _write_cast(kind: str, expression: str) -> str:
    return f"np.bool_({expression})" if kind == "bool" else f"np.{kind}({expression})"


def _write_wrapping(op: str, left: str, right: str) -> str:
    """Return int64 arithmetic that wraps as in Java: unsigned, as LLVM assumes no overflow of signed integers."""
    return f"np.int64(np.uint64({left}) {op} np.uint64({right}))"


def _write_sign(op: str, value: str, kind: str) -> str:
    if kind.startswith("float"):
        return f"-{value}" if op == "negate" else f"abs({value})"
    negated = _write_wrapping("-", "0", value) if kind == "int64" else f"-np.int64({value})"
    return negated if op == "negate" else f"({negated} if {value} < 0 else {value})"


def _write_comparison(op: str, left: str, right: str, kind: str) -> str:
    """Return the comparison of two numbers; NaN equals NaN, and is greater than all other numbers."""
    if not kind.startswith("float"):
        return f"{left} {_SYMBOLS[op]} {right}"
    left_nan, right_nan = f"({left} != {left})", f"({right} != {right})"
    if op == "=":
        return f"({left} == {right}) | ({left_nan} & {right_nan})"
    if op in ("<", "<="):
        below = f"({left} {op} {right}) | ({right_nan}"
        return f"{below} & (not {left_nan}))" if op == "<" else f"{below})"
    return _write_comparison({">": "<", ">=": "<="}[op], right, left, kind)
