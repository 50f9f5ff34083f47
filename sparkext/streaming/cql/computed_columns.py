"""Functions of texts and times in continuous queries, as Spark computes them: see `streaming.cql.language.computed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkext.streaming.cql.language.formulas import translate_constant as typed_constant
from sparkext.streaming.cql.language.syntax import Call, Constant, Formula, Name, Operation

if TYPE_CHECKING:
    from pyspark.sql import Column


def create_spark_column(formula: Formula, column_of: Callable[[str], Column]) -> Column:
    """Return a formula as a Column that Spark computes; `column_of` maps registered names to columns."""
    from pyspark.sql import functions as F

    if isinstance(formula, Name):
        return column_of(formula.name)
    if isinstance(formula, Constant):
        return _create_spark_literal(formula)
    if isinstance(formula, Operation):
        return -create_spark_column(formula.args[0], column_of)
    assert isinstance(formula, Call), "nothing else is computed"
    return F.call_function(formula.function, *(create_spark_column(part, column_of) for part in formula.args))


def _create_spark_literal(constant: Constant) -> Column:
    from pyspark.sql import functions as F

    if constant.kind == "null":
        return F.lit(None)
    if constant.kind == "integer":
        return F.lit(int(constant.text))
    if constant.kind == "timestamp":
        return F.timestamp_micros(F.lit(int(typed_constant(constant).known.text or 0)))
    value = F.lit(constant.text)
    return value if constant.kind == "string" else value.cast("boolean" if constant.kind == "bool" else constant.kind)
