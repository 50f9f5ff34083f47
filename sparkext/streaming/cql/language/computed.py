"""Functions of texts and times, which Spark computes for the input rows of a stream.

An engine represents texts by codes, which it can compare but not inspect. A call of such a function, of columns of one
registered stream, therefore becomes a hidden column of this stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkext.plans.expressions.key_types import KeyType
from sparkext.streaming.cql.language.syntax import Call, Constant, Formula, Name, Operation, Position
from sparkext.streaming.cql.language.types import BOOL, INT, STRING, TIMESTAMP

TEXT, NUMBER, TIME, MOMENT = "a text", "an int", "a date or time", "a timestamp"
_MANY = 255


@dataclass(frozen=True)
class Signature:
    """The types of a function's arguments, of which the first `least` are required, and the type of its result."""

    takes: tuple[str, ...]
    returns: KeyType
    least: int

    @property
    def expected(self) -> str:
        """The expected arguments, for messages."""
        if len(self.takes) == _MANY:
            return "texts"
        return ", ".join([*self.takes[: self.least], *(f"[{kind}]" for kind in self.takes[self.least :])])


def _create_signature(*takes: str, returns: KeyType, least: int | None = None) -> Signature:
    return Signature(takes, returns, len(takes) if least is None else least)


SIGNATURES: Mapping[str, Signature] = {
    **dict.fromkeys(
        ("upper", "lower", "trim", "ltrim", "rtrim", "reverse", "initcap"), _create_signature(TEXT, returns=STRING)
    ),
    "concat": _create_signature(*(TEXT,) * _MANY, returns=STRING, least=1),
    **dict.fromkeys(("substring", "substr"), _create_signature(TEXT, NUMBER, NUMBER, returns=STRING, least=2)),
    **dict.fromkeys(("left", "right"), _create_signature(TEXT, NUMBER, returns=STRING)),
    **dict.fromkeys(("lpad", "rpad"), _create_signature(TEXT, NUMBER, TEXT, returns=STRING, least=2)),
    **dict.fromkeys(("replace", "regexp_replace"), _create_signature(TEXT, TEXT, TEXT, returns=STRING)),
    "regexp_extract": _create_signature(TEXT, TEXT, NUMBER, returns=STRING, least=2),
    "split_part": _create_signature(TEXT, TEXT, NUMBER, returns=STRING),
    "length": _create_signature(TEXT, returns=INT),
    "instr": _create_signature(TEXT, TEXT, returns=INT),
    **dict.fromkeys(
        ("like", "rlike", "startswith", "endswith", "contains"), _create_signature(TEXT, TEXT, returns=BOOL)
    ),
    **dict.fromkeys(
        ("year", "quarter", "month", "day", "dayofweek", "dayofyear"), _create_signature(TIME, returns=INT)
    ),
    **dict.fromkeys(("hour", "minute", "second"), _create_signature(MOMENT, returns=INT)),
    "date_trunc": _create_signature(TEXT, MOMENT, returns=TIMESTAMP),
}


def takes(kind: str, argument_type: KeyType | None) -> bool:
    """Whether a type (None: NULL) is accepted as an argument of a kind."""
    if argument_type is None:
        return True
    times = ("timestamp", "timestamp_ntz")
    names = {TEXT: ("string",), NUMBER: ("int8", "int16", "int32"), MOMENT: times, TIME: ("date", *times)}
    return argument_type.name in names[kind]


def is_computed(formula: Formula) -> bool:
    """Whether a formula is a call of a function that Spark computes."""
    return isinstance(formula, Call) and formula.function in SIGNATURES


def is_constant(formula: Formula) -> bool:
    """Whether a formula is a constant, or a negated constant."""
    if isinstance(formula, Operation) and formula.op == "negate":
        return is_constant(formula.args[0])
    return isinstance(formula, Constant)


_NO_POSITION = Position(0, 0)


def strip_positions(formula: Formula, names: Mapping[Name, str]) -> Formula:
    """Return a call without positions, with the registered names of columns, so that equal calls are equal."""
    if isinstance(formula, Name):
        return Name(None, names[formula], _NO_POSITION)
    if isinstance(formula, Call | Operation):
        return replace(formula, args=tuple(strip_positions(part, names) for part in formula.args), at=_NO_POSITION)
    return replace(formula, at=_NO_POSITION)


def spell_formula(formula: Formula) -> str:
    """Spell a call as an unambiguous name of its computed column."""
    if isinstance(formula, Call):
        return f"{formula.function}({', '.join(map(spell_formula, formula.args))})"
    if isinstance(formula, Operation):
        return f"-{spell_formula(formula.args[0])}"
    if isinstance(formula, Constant):
        return _spell_constant(formula)
    name = str(formula)
    return name if name.isidentifier() else f"`{name.replace('`', '``')}`"


def _spell_constant(constant: Constant) -> str:
    if constant.kind in ("integer", "double", "null"):
        return constant.text or "NULL"
    quoted = "'" + constant.text.replace("'", "''") + "'"
    return quoted if constant.kind == "string" else f"{constant.kind.upper()} {quoted}"
