"""A resolved theta join: the columns that its predicate reads, and its output columns."""

from __future__ import annotations

import base64
import keyword
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numba.core.errors import NumbaError

from sparkext.joins.arguments import read_kind
from sparkext.joins.columns import JoinInputs, OutputField, check_names
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.plans.expressions.number_types import number_type
from sparkext.plans.pipeline.spec import JoinSpec
from sparkext.plans.pipeline.theta import NamedColumn, PythonPredicate
from sparkext.predicates.python_predicate import PredicateError, bind_predicate, find_read_fields, is_function
from sparkext.predicates.theta_condition import record_fields
from sparkext.rows.types import spark_key_type
from sparkext.spark.internals import pickle_value

_KINDS = ("inner", "left", "semi", "anti")


def resolve_theta(inputs: JoinInputs, predicate: Any, how: Any, problems: list[str]) -> ResolvedJoin | None:
    """Compile the predicate for these columns; return None if `problems` got longer."""
    before = len(problems)
    kind = read_kind(how, _KINDS, "theta_join", problems)
    sides = [inputs.left, inputs.right_outputs(kind == "left")]
    if not is_function(predicate):
        problems.append(
            f"predicate is {predicate!r}: expected a function of a left and a right row that returns a bool"
        )
        return None
    numeric_columns = [_select_columns(side, None) for side in sides]
    available = f"left has {_list_columns(numeric_columns[0])}; right has {_list_columns(numeric_columns[1])}"
    try:
        names_read = [find_read_fields(predicate, number) for number in range(2)]
    except ValueError as error:
        problems.append(f"predicate {_name_predicate(predicate)} {error}")
        return None
    except NumbaError:
        names_read = [
            {column.name for column in record} for record in numeric_columns
        ]  # `bind_predicate` reports the error below
    missing = [
        f"{side}.{name}"
        for side, names, record in zip(("left", "right"), names_read, numeric_columns, strict=True)
        for name in sorted(names - {column.name for column in record})
    ]
    records = [_select_columns(side, names) for side, names in zip(sides, names_read, strict=True)]
    if missing:
        reason = f"reads {', '.join(missing)}; each field must name exactly one numeric column"
        problems.append(f"predicate {_name_predicate(predicate)} {reason}: {available}")
    else:
        try:
            bind_predicate(predicate, *map(record_fields, records))
        except PredicateError as error:
            problems.append(f"predicate {_name_predicate(predicate)} does not compile: {error}\n{available}")
    outputs = [*inputs.left, *(sides[1] if kind in ("inner", "left") else ())]
    check_names(outputs, inputs.case_sensitive, problems)
    if len(problems) > before:
        return None
    code = base64.b64encode(pickle_value(predicate)).decode()
    published = tuple(range(len(inputs.right)))
    if kind in ("semi", "anti"):
        published = tuple(column.column for column in records[1])
        records[1] = [replace(column, column=number) for number, column in enumerate(records[1])]
    theta = PythonPredicate(code, tuple(records[0]), tuple(records[1]))
    spec = JoinSpec(str(kind), (), "auto", f"{kind} by {_name_predicate(predicate)}", theta=theta)
    return ResolvedJoin(spec, published, tuple(outputs), (), ())


def _select_columns(outputs: Sequence[OutputField], names: set[str] | None) -> list[NamedColumn]:
    """Return the numeric columns whose names are unique Python identifiers, only those in `names` unless it is None."""
    columns = []
    counts = Counter(output.field.name for output in outputs)
    for output in outputs:
        name, ref = output.field.name, output.ref
        key_type = spark_key_type(output.field)
        usable = name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") and counts[name] == 1
        is_number = key_type is not None and key_type.name != "decimal" and number_type(key_type) is not None
        if usable and is_number and ref.otherwise is None and (names is None or name in names):
            columns.append(NamedColumn(name, ref.source, ref.column, str(key_type)))
    return columns


def _list_columns(columns: Sequence[NamedColumn]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in record_fields(columns)) or "no numeric column"


def _name_predicate(predicate: Any) -> str:
    return str(getattr(predicate, "__name__", predicate))
