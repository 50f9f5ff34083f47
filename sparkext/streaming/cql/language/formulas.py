"""Translates formulas of CQL into expressions with types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.expressions.number_types import FLOATS, INTEGERS
from sparkext.streaming.cql.language.computed import (
    SIGNATURES,
    is_computed,
    is_constant,
    spell_formula,
    strip_positions,
    takes,
)
from sparkext.streaming.cql.language.queries import Aggregate, RelationColumn
from sparkext.streaming.cql.language.syntax import Call, Case, Cast, Constant, Formula, Name, Operation, Position
from sparkext.streaming.cql.language.types import (
    BOOL,
    DATE,
    DOUBLE,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TYPE_NAMES,
    is_number,
    parse_type,
    spell_type,
    unify_types,
)

AGGREGATES = ("count", "sum", "avg", "min", "max")
FUNCTIONS = {
    "abs": (1, 1),
    "coalesce": (1, None),
    "ifnull": (2, 2),
    "nvl": (2, 2),
    "nullif": (2, 2),
    "if": (3, 3),
    "least": (1, None),
    "greatest": (1, None),
    "mod": (2, 2),
    "sqrt": (1, 1),
}
"""Functions of single rows, with their minimum and maximum numbers of arguments (None: unlimited)."""


class BindingError(Exception):
    """A query is invalid."""

    def __init__(self, at: Position, text: str) -> None:
        self.at, self.text = at, text
        super().__init__(text)


@dataclass(frozen=True)
class TypedExpression:
    """An expression and its type; both are None for a NULL of any type."""

    expression: Expression | None
    type: KeyType | None
    nullable: bool

    @property
    def known(self) -> Expression:
        """The expression; only for values that are not an untyped NULL."""
        assert self.expression is not None, "its type has been looked at"
        return self.expression

    def cast(self, kind: KeyType) -> Expression:
        """Return the value cast to a type that holds all of its values."""
        if self.expression is None:
            return literal(None, kind)
        if self.type == kind:
            return self.expression
        if self.expression.op == "literal" and self.type is not None and self.type.name in INTEGERS:
            return literal(self.expression.text, kind)
        return Expression("cast", kind, (self.expression,))


Compute = Callable[[int, RelationColumn], int | None]
"""Adds a computed column to a source unless it exists; returns its index, None if the source cannot have any."""


class RowScope:
    """The columns of all sources."""

    def __init__(
        self, aliases: Sequence[str], columns: Sequence[tuple[RelationColumn, ...]], compute: Compute | None = None
    ) -> None:
        """Bind it to the sources' names and columns. `compute`: adds a computed column; None: not possible."""
        self.aliases = tuple(aliases)
        self._columns, self._compute = columns, compute

    def names(self, of: str | None) -> list[tuple[str, str]]:
        """Return the columns of one source, or of all sources, each with the source's name."""
        return [
            (alias, relation_column.name)
            for alias, columns in zip(self.aliases, self._columns, strict=True)
            for relation_column in columns
            if (of is None or alias.lower() == of.lower()) and relation_column.computed is None
        ]

    def place(self, name: Name) -> tuple[int, int]:
        """Return the index of a column's source, and its index in the source."""
        matches = [
            (source, position)
            for source, columns in enumerate(self._columns)
            if name.of is None or self.aliases[source].lower() == name.of.lower()
            for position, relation_column in enumerate(columns)
            if relation_column.name.lower() == name.name.lower() and relation_column.computed is None
        ]
        if len(matches) == 1:
            return matches[0]
        if matches:
            sources = ", ".join(self.aliases[source] for source, _ in matches)
            raise BindingError(name.at, f"column {name} is in several sources ({sources}): write source.column")
        if name.of is not None and name.of.lower() not in [alias.lower() for alias in self.aliases]:
            raise BindingError(name.at, f"there is no source {name.of}. Sources: {', '.join(self.aliases)}")
        available = ", ".join(f"{alias}.{column_name}" for alias, column_name in self.names(name.of))
        raise BindingError(name.at, f"there is no column {name}. Columns: {available}")

    def resolve_special(self, formula: Formula) -> TypedExpression | None:
        """Return the expression of a formula that the scope itself resolves; None if it depends only on its parts."""
        if isinstance(formula, Name):
            source, position = self.place(formula)
            relation_column = self._columns[source][position]
            return TypedExpression(
                column(source, position, relation_column.type), relation_column.type, relation_column.nullable
            )
        if isinstance(formula, Call) and formula.function in AGGREGATES:
            raise BindingError(
                formula.at, f"{formula.function.upper()} is an aggregate: use it only in SELECT and HAVING"
            )
        if isinstance(formula, Call) and is_computed(formula):
            return self._add_computed_column(formula)
        return None

    def _add_computed_column(self, call: Call) -> TypedExpression:
        """Return the computed column for a call of a function of texts or times, which is added to its source."""
        kind = self._find_computed_type(call)
        function = call.function.upper()
        names = [part for part in walk_formula(call) if isinstance(part, Name)]
        positions = {name: self.place(name) for name in names}
        sources = {source for source, _ in positions.values()}
        if len(sources) != 1:
            raise BindingError(
                call.at, f"{function} of columns of {len(sources)} sources: expected columns of one stream"
            )
        (source,) = sources
        registered = {name: self._columns[source][position].name for name, (_, position) in positions.items()}
        formula = strip_positions(call, registered)
        computed_column = RelationColumn(spell_formula(formula), kind, True, formula)
        position = None if self._compute is None else self._compute(source, computed_column)
        if position is None:
            raise BindingError(
                call.at,
                f"{function} of columns of {self.aliases[source]}, which is not a registered stream: {function} is"
                " computed for input rows, so call it in a query that reads the stream",
            )
        return TypedExpression(column(source, position, kind), kind, True)

    def _find_computed_type(self, call: Call) -> KeyType:
        """Return the type of a call's result."""
        signature, args, function = SIGNATURES[call.function], call.args, call.function.upper()
        is_called = not (call.star or call.distinct) and signature.least <= len(args) <= len(signature.takes)
        if not is_called:
            raise BindingError(call.at, f"{function} takes {signature.expected}")
        for kind, argument in zip(signature.takes, args, strict=False):
            if isinstance(argument, Call) and is_computed(argument):
                argument_type: KeyType | None = self._find_computed_type(argument)
            elif isinstance(argument, Name) or is_constant(argument):
                argument_type = FormulaTranslator(self).translate_formula(argument).type
            else:
                raise BindingError(
                    argument.at,
                    f"{function} is computed for input rows: expected columns, constants and such calls, got another"
                    " formula",
                )
            if not takes(kind, argument_type):
                raise BindingError(
                    argument.at, f"{function} takes {signature.expected}, not {spell_type(argument_type or STRING)}"
                )
        return signature.returns


class GroupScope(RowScope):
    """The columns of groups: the grouping columns, and the aggregates, which it collects."""

    def __init__(self, rows: RowScope, keys: Sequence[TypedExpression]) -> None:
        """Bind it to the grouping expressions."""
        super().__init__(rows.aliases, rows._columns)
        self._rows, self._keys = FormulaTranslator(rows), list(keys)
        self.aggregates: list[Aggregate] = []

    @staticmethod
    def has_aggregate(formula: Formula) -> bool:
        """Whether a formula contains an aggregate."""
        return any(isinstance(part, Call) and part.function in AGGREGATES for part in walk_formula(formula))

    def resolve_special(self, formula: Formula) -> TypedExpression | None:
        """See `RowScope`."""
        if isinstance(formula, Call) and formula.function in AGGREGATES:
            return self._aggregate(formula)
        if not self.has_aggregate(formula) and not isinstance(formula, Constant):
            typed = self._rows.translate_formula(formula)
            for position, key in enumerate(self._keys):
                if key.expression == typed.expression and typed.type is not None:
                    return TypedExpression(column(0, position, typed.type), typed.type, typed.nullable)
            if isinstance(formula, Name):
                raise BindingError(formula.at, f"column {formula} is neither in GROUP BY nor in an aggregate")
        return None

    def _aggregate(self, call: Call) -> TypedExpression:
        name = call.function
        if call.star:
            if name != "count":
                raise BindingError(call.at, f"{name.upper()}(*) is not supported: only COUNT counts rows")
            return self._add_aggregate(Aggregate("count", None, False, LONG), False)
        if len(call.args) != 1:
            raise BindingError(call.at, f"{name.upper()} of {len(call.args)} arguments: expected one argument")
        value = self._rows.translate_formula(call.args[0])
        if value.type is None:
            raise BindingError(call.at, f"{name.upper()} of NULL, which has no type: use CAST")
        kind, nullable = value.type, value.nullable
        if name == "count":
            kind, nullable = LONG, False
        elif name in ("sum", "avg"):
            if not is_number(value.type):
                raise BindingError(call.at, f"{name.upper()} of {spell_type(value.type)}: expected a number")
            is_whole = value.type.name in INTEGERS
            kind = LONG if is_whole and name == "sum" else DOUBLE
            nullable |= is_whole  # a sum of integers may not fit
        distinct = call.distinct and name not in ("min", "max")
        return self._add_aggregate(Aggregate(name, value.known, distinct, kind), nullable)

    def _add_aggregate(self, aggregate: Aggregate, nullable: bool) -> TypedExpression:
        if aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
        position = len(self._keys) + self.aggregates.index(aggregate)
        return TypedExpression(column(0, position, aggregate.type), aggregate.type, nullable)


class FormulaTranslator:
    """Turns formulas into expressions over the columns of a scope."""

    def __init__(self, scope: RowScope) -> None:
        """Bind it to the scope."""
        self._scope = scope

    def translate_formula(self, formula: Formula) -> TypedExpression:
        """Return the expression of a formula, and its type.

        Raises
        ------
        BindingError
            The formula is not valid in this scope.
        """
        special = self._scope.resolve_special(formula)
        if special is not None:
            return special
        if isinstance(formula, Constant):
            return translate_constant(formula)
        if isinstance(formula, Operation):
            return self._operation(formula)
        if isinstance(formula, Case):
            return self._case(formula)
        if isinstance(formula, Cast):
            return self._cast(formula)
        assert isinstance(formula, Call), "names are the scope's"
        return self._call(formula)

    def _operation(self, node: Operation) -> TypedExpression:
        args = [self.translate_formula(argument) for argument in node.args]
        if node.op in ("and", "or", "not"):
            operands = [
                require_type(value, BOOL, part.at, node.op.upper()) for value, part in zip(args, node.args, strict=True)
            ]
            return TypedExpression(condition(node.op, *operands), BOOL, any(value.nullable for value in args))
        if node.op == "is_null":
            (operand,) = args
            return TypedExpression(
                literal("true", BOOL) if operand.type is None else condition("is_null", operand.known), BOOL, False
            )
        if node.op == "negate":
            (operand,) = args
            kind = self._require_number(operand, node)
            if operand.known.op == "literal" and operand.known.text is not None:
                return _create_numeric_literal(f"-{operand.known.text}", kind, node.at)
            return TypedExpression(
                Expression("negate", kind, (operand.known,), checked=True), kind, _may_overflow(operand)
            )
        if node.op in ("+", "-", "*", "/", "%"):
            return self._arithmetic(node.op, args, node)
        return self._compare(node, args)

    def _require_number(self, value: TypedExpression, node: Formula) -> KeyType:
        if value.type is None or not is_number(value.type):
            type_name = "NULL" if value.type is None else spell_type(value.type)
            raise BindingError(node.at, f"{_name_operator(node)} of {type_name}: expected a number")
        return value.type

    def _arithmetic(self, op: str, args: Sequence[TypedExpression], node: Formula) -> TypedExpression:
        left, right = (self._require_number(value, node) for value in args)
        kind = DOUBLE if op == "/" else unify_types(left, right)
        assert kind is not None, "of numbers there is one"
        expression = Expression(op, kind, tuple(value.cast(kind) for value in args), checked=True)
        is_safe = kind.name in FLOATS and op not in ("/", "%")
        return TypedExpression(expression, kind, not is_safe or any(value.nullable for value in args))

    def _compare(self, node: Operation, args: Sequence[TypedExpression]) -> TypedExpression:
        kind = self._find_common_type(args, node)
        operands = tuple(value.cast(kind) for value in args)
        nullable = node.op != "<=>" and any(value.nullable for value in args)
        if node.op == "<>":
            return TypedExpression(condition("not", condition("=", *operands)), BOOL, nullable)
        return TypedExpression(condition(node.op, *operands), BOOL, nullable)

    def _find_common_type(self, args: Sequence[TypedExpression], node: Formula) -> KeyType:
        """Return the common type of all values."""
        kind: KeyType | None = None
        for value in args:
            if value.type is None:
                continue
            common = value.type if kind is None else unify_types(kind, value.type)
            if common is None:
                assert kind is not None, "there is one that does not fit"
                raise BindingError(
                    node.at, f"{_name_operator(node)} of {spell_type(kind)} and {spell_type(value.type)}: use CAST"
                )
            kind = common
        if kind is None:
            raise BindingError(node.at, f"{_name_operator(node)} of NULL only, which has no type: use CAST")
        return kind

    def _case(self, node: Case) -> TypedExpression:
        values = [self.translate_formula(value) for _, value in node.branches]
        otherwise = (
            TypedExpression(None, None, True) if node.otherwise is None else self.translate_formula(node.otherwise)
        )
        kind = self._find_common_type([*values, otherwise], node)
        expression = otherwise.cast(kind)
        for (when, _), value in reversed([*zip(node.branches, values, strict=True)]):
            test = require_type(self.translate_formula(when), BOOL, when.at, "WHEN")
            expression = Expression("if", kind, (test, value.cast(kind), expression))
        return TypedExpression(expression, kind, any(result.nullable for result in [*values, otherwise]))

    def _cast(self, node: Cast) -> TypedExpression:
        value, kind = self.translate_formula(node.value), parse_type(node.type)
        if kind is None:
            raise BindingError(node.at, f"there is no type {node.type}, expected one of {' '.join(TYPE_NAMES)}")
        if value.type is None:
            return TypedExpression(literal(None, kind), kind, True)
        if value.type == kind:
            return value
        fits = value.type.name in INTEGERS and is_number(kind)
        if not fits and not (value.type.name in FLOATS and kind.name in FLOATS):
            raise BindingError(node.at, f"CAST of {spell_type(value.type)} to {spell_type(kind)} is not supported")
        return TypedExpression(value.cast(kind), kind, value.nullable)

    def _call(self, node: Call) -> TypedExpression:
        if is_computed(node):
            raise BindingError(
                node.at, f"{node.function.upper()} is not computed after GROUP BY: add the call to GROUP BY"
            )
        if node.function not in FUNCTIONS:
            names = " ".join([*AGGREGATES, *FUNCTIONS, *SIGNATURES])
            raise BindingError(node.at, f"there is no function {node.function}, expected one of {names}")
        least, most = FUNCTIONS[node.function]
        if node.star or node.distinct or not least <= len(node.args) <= (most or len(node.args)):
            raise BindingError(
                node.at,
                f"arguments of {node.function.upper()}: expected {least if most == least else f'{least} or more'}",
            )
        args = [self.translate_formula(argument) for argument in node.args]
        if node.function == "mod":
            return self._arithmetic("%", args, node)
        if node.function == "abs":
            kind = self._require_number(args[0], node)
            return TypedExpression(
                Expression("abs", kind, (args[0].known,), checked=True), kind, _may_overflow(args[0])
            )
        if node.function == "sqrt":
            self._require_number(args[0], node)
            return TypedExpression(Expression("sqrt", DOUBLE, (args[0].cast(DOUBLE),)), DOUBLE, args[0].nullable)
        if node.function == "if":
            test, *values = args
            kind = self._find_common_type(values, node)
            test_expression = require_type(test, BOOL, node.args[0].at, "IF")
            expression = Expression("if", kind, (test_expression, *(value.cast(kind) for value in values)))
            return TypedExpression(expression, kind, any(value.nullable for value in values))
        kind = self._find_common_type(args, node)
        operands = tuple(value.cast(kind) for value in args)
        if node.function == "nullif":
            equal = condition("=", *operands)
            return TypedExpression(Expression("if", kind, (equal, literal(None, kind), operands[0])), kind, True)
        op = "coalesce" if node.function in ("ifnull", "nvl") else node.function
        return TypedExpression(Expression(op, kind, operands), kind, all(value.nullable for value in args))


def split_conjunction(formula: Formula) -> Iterator[Formula]:
    """Yield the operands of a conjunction."""
    if isinstance(formula, Operation) and formula.op == "and":
        for part in formula.args:
            yield from split_conjunction(part)
    else:
        yield formula


def walk_formula(formula: Formula) -> Iterator[Formula]:
    """Yield a formula and all of its parts, recursively."""
    yield formula
    inner: Sequence[Formula | None] = ()
    if isinstance(formula, Operation | Call):
        inner = formula.args
    elif isinstance(formula, Case):
        inner = [*(part for branch in formula.branches for part in branch), formula.otherwise]
    elif isinstance(formula, Cast):
        inner = [formula.value]
    for part in inner:
        if part is not None:
            yield from walk_formula(part)


def require_type(value: TypedExpression, kind: KeyType, at: Position, subject: str) -> Expression:
    """Return the expression of a value that must have a certain type."""
    if value.type is not None and value.type != kind:
        raise BindingError(at, f"{subject} of {spell_type(value.type)}: expected {spell_type(kind)}")
    return value.cast(kind)


def _may_overflow(value: TypedExpression) -> bool:
    return value.nullable or (value.type is not None and value.type.name in INTEGERS)


def _name_operator(node: Formula) -> str:
    if isinstance(node, Operation):
        return {"negate": "-"}.get(node.op, node.op)
    return node.function.upper() if isinstance(node, Call) else "CASE"


_EPOCH = datetime(1970, 1, 1)


def translate_constant(node: Constant) -> TypedExpression:
    """Return a constant; timestamps are in UTC.

    Raises
    ------
    BindingError
        The text is not a constant of its kind.
    """
    if node.kind == "null":
        return TypedExpression(None, None, True)
    if node.kind == "integer":
        return _create_numeric_literal(node.text, INT, node.at)
    if node.kind == "double":
        return _create_numeric_literal(node.text, DOUBLE, node.at)
    if node.kind in ("bool", "string"):
        kind = BOOL if node.kind == "bool" else STRING
        return TypedExpression(literal(node.text, kind), kind, False)
    try:
        if node.kind == "date":
            days = (date.fromisoformat(node.text) - _EPOCH.date()).days
            return TypedExpression(literal(str(days), DATE), DATE, False)
        time = datetime.fromisoformat(node.text)
    except ValueError:
        raise BindingError(
            node.at, f"{node.text!r} is not a {node.kind}: expected 2026-01-31, or 2026-01-31 12:30:00 for a timestamp"
        ) from None
    if time.tzinfo is not None:
        time = time.astimezone(timezone.utc).replace(tzinfo=None)
    return TypedExpression(literal(str((time - _EPOCH) // timedelta(microseconds=1)), TIMESTAMP), TIMESTAMP, False)


def _create_numeric_literal(text: str, kind: KeyType, at: Position) -> TypedExpression:
    """Return a numeric literal; integers that do not fit int become bigint."""
    if kind.name in INTEGERS:
        bits = next((bits for bits in (32, 64) if -(1 << bits - 1) <= int(text) < 1 << bits - 1), None)
        if bits is None and int(text) != 1 << 63:  # -(1 << 63) fits
            raise BindingError(at, f"{text} does not fit bigint")
        kind = INT if bits == 32 else LONG
    return TypedExpression(literal(text, kind), kind, False)
