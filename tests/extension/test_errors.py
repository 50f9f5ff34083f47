"""Failing conditions: they fail on exactly the rows that Spark evaluates, and with Spark's own error."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.column import Column

from sparkext.expressions.expression_code import ColumnLocation, generate_expression_code
from sparkext.kernels.indexes.nested_loop import FAILED, HIT
from sparkext.plans.expressions import expression
from sparkext.plans.expressions.expression import ColumnPlace, Expression, parse_expression
from sparkext.predicates.theta_condition import _convert_values, _list_arrays
from tests.support.frames import frame
from tests.support.planned_joins import assert_declined, mode, pipelines_of, plan_of
from tests.support.rows import rows_of
from tests.support.sessions import configured

HINT = "/*+ PIPELINED_JOIN(b) */"
LEAST, MOST = -(2**31), 2**31 - 1


@pytest.fixture(scope="module", autouse=True)
def _tables(spark: SparkSession) -> Iterator[None]:
    """Register points and spans, with columns at the limits of their types. One span ends at the largest integer."""
    frame(
        spark,
        1,
        id=range(6),
        k=pa.array([1, 1, 2, 2, 3, None], pa.int32()),
        x=pa.array([1, 5, 9, None, -4, 30], pa.int32()),
        z=pa.array([0, 2, 0, 4, 5, None], pa.int32()),
        far=pa.array([LEAST, MOST, 0, None, 7, 1], pa.int32()),
        tiny=pa.array([127, -128, 0, 1, 2, None], pa.int8()),
        huge=pa.array([2**63 - 1, -(2**63), 0, 1, None, 2], pa.int64()),
        name=["1", "2", "no number", "4", None, "6"],
    ).cache().createOrReplaceTempView("a")
    frame(
        spark,
        1,
        id=range(5),
        k=pa.array([1, 2, 2, 3, None], pa.int32()),
        lo=pa.array([0, 4, 8, None, 100], pa.int32()),
        hi=pa.array([3, 6, 50, 7, MOST], pa.int32()),
        z=pa.array([3, 0, 1, 0, None], pa.int32()),
        far=pa.array([1, LEAST, MOST, 0, None], pa.int32()),
        tiny=pa.array([1, -128, 127, 0, None], pa.int8()),
        huge=pa.array([1, -(2**63), 2**63 - 1, 0, None], pa.int64()),
        name=["1", "x", None, "4", "5"],
    ).cache().createOrReplaceTempView("b")
    yield
    for name in ("a", "b"):
        spark.catalog.dropTempView(name)


def outcome(df: DataFrame) -> Counter[str] | tuple[Any, ...]:
    """Return the rows, or the complete error of Spark: condition, state, parameters and query contexts."""
    try:
        return rows_of(df)
    except PySparkException as error:
        contexts = [(context.fragment(), context.startIndex()) for context in error.getQueryContext()]
        return error.getCondition(), error.getSqlState(), error.getMessageParameters(), contexts


def assert_same_outcome(spark: SparkSession, query: str, *joins: int) -> Counter[str] | tuple[Any, ...]:
    """Assert that the plan has these pipelines, and that rows or error equal Spark's; return them."""
    ours = spark.sql(query)
    assert pipelines_of(ours) == list(joins), plan_of(ours)
    got = outcome(ours)
    with mode(spark, "off"):
        expected = outcome(spark.sql(query))
    assert got == expected, query
    return got


def condition(got: Counter[str] | tuple[Any, ...]) -> str | None:
    return got[0] if isinstance(got, tuple) else None


OVERFLOW, BY_ZERO = "ARITHMETIC_OVERFLOW", "DIVIDE_BY_ZERO"
BOUNDS = {
    "the sentinel passes no condition before": ("INNER", "a.x >= b.lo AND a.x < b.hi + 1", None),
    "the sentinel is tried with every row": ("LEFT", "a.x > 0 AND a.x < b.hi + 1 AND a.x >= b.lo", OVERFLOW),
    "the sentinel passes": ("INNER", "a.x >= b.lo - 200 AND a.x < b.hi + 1", OVERFLOW),
    "both bounds, from the other side": ("LEFT", "b.hi < 100 AND a.x + 1 BETWEEN b.lo AND b.hi + 3", None),
    "a null goes on": ("LEFT", "a.x >= b.lo AND a.id = 3 AND a.z >= b.hi + 1", OVERFLOW),
    "a wide type": ("INNER", "a.huge - 1 >= b.huge", OVERFLOW),
    "no pair": ("LEFT SEMI", "a.x > 1000 AND a.huge - 1 >= b.huge", None),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(spark: SparkSession, name: str) -> None:
    kind, text, expected = BOUNDS[name]
    columns = "a.id" if kind == "LEFT SEMI" else "a.id, b.id"
    got = assert_same_outcome(spark, f"SELECT {HINT} {columns} FROM a {kind} JOIN b ON {text}", 1)
    assert condition(got) == expected


CHAINS = {
    "a division between two joins": (
        f"""SELECT {HINT} /*+ PIPELINED_JOIN(c) */ a.id, c.id FROM (SELECT {HINT} a.id, a.k, a.x / b.z AS q FROM a
            JOIN b ON a.k = b.k) a JOIN b c ON a.id + 100 = c.id AND q > 1""",
        [1, 1],
        BY_ZERO,
    ),
    "a filter between two joins": (
        f"""SELECT {HINT} /*+ PIPELINED_JOIN(c) */ j.id FROM (SELECT {HINT} a.id, a.far FROM a JOIN b ON a.k = b.k
            WHERE a.x / b.z > 1) j JOIN b c ON j.far = c.far""",
        [1, 1],
        BY_ZERO,
    ),
    "a condition in addition to the keys of the lower join": (
        f"""SELECT {HINT} /*+ PIPELINED_JOIN(c) */ a.id FROM a JOIN b ON a.k = b.k AND a.x / b.z > 1 JOIN b c
            ON a.far = c.far""",
        [1, 1],
        BY_ZERO,
    ),
    "a condition in addition to the keys of the upper join": (
        f"""SELECT {HINT} /*+ PIPELINED_JOIN(c) */ a.id FROM a JOIN b ON a.k = b.k AND a.id < b.id
            JOIN b c ON a.k = c.k AND a.x / c.z > 1""",
        [2],
        None,
    ),
    "a condition goes on after a null": (
        f"SELECT {HINT} a.id FROM a JOIN b ON a.k = b.k AND if(b.lo >= 0, a.x, b.lo) > 1000 AND a.id / b.z > 1",
        [1],
        BY_ZERO,
    ),
    "a formula of the lower join": (
        f"""SELECT {HINT} /*+ PIPELINED_JOIN(c) */ a.id FROM a JOIN b ON a.huge + b.huge > 7
            JOIN b c ON a.far = c.far""",
        [2],
        OVERFLOW,
    ),
    "a band": (
        f"SELECT {HINT} a.id, b.id FROM (SELECT * FROM a WHERE id = 1) a JOIN b ON abs(a.far - b.far) <= 2",
        [1],
        OVERFLOW,
    ),
    "a band that holds": (f"SELECT {HINT} a.id, b.id FROM a JOIN b ON abs(a.x - b.lo) <= 2", [1], None),
    "the first match comes before what fails": (
        f"SELECT {HINT} a.id FROM a LEFT SEMI JOIN b ON a.tiny + a.id < 0 OR b.id = 0 OR a.x / b.z > 100",
        [1],
        None,
    ),
    "the first match in a band comes before what fails": (
        f"SELECT {HINT} a.id FROM (SELECT * FROM a WHERE z < 3) a LEFT SEMI JOIN b ON abs(a.z - b.far) <= 1",
        [1],
        None,
    ),
    "what fails comes before the first match in a band": (
        f"SELECT {HINT} a.id FROM a LEFT ANTI JOIN b ON abs(a.z - b.far) <= 1",
        [1],
        OVERFLOW,
    ),
    "what fails comes before the first match": (
        f"SELECT {HINT} a.id FROM a LEFT SEMI JOIN b ON b.id > 1 AND a.x / b.z > 1000",
        [1],
        BY_ZERO,
    ),
    "a match with an equal key before what fails": (
        f"""SELECT {HINT} a.id FROM a LEFT ANTI JOIN (SELECT * FROM b WHERE id = 0) b
            ON a.k = b.k AND (b.id = 0 OR a.x / b.id > 1)""",
        [1],
        None,
    ),
    "an error that an earlier condition excludes": (
        f"SELECT {HINT} a.id, b.id FROM a LEFT JOIN b ON a.k = b.k AND b.z <> 0 AND a.x / b.z > 1",
        [1],
        None,
    ),
}


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_moved(spark: SparkSession, name: str) -> None:
    query, joins, expected = CHAINS[name]
    assert condition(assert_same_outcome(spark, query, *joins)) == expected


def test_what_is_declined(spark: SparkSession) -> None:
    """Their errors would depend on the order in which conditions are evaluated."""
    ranged = "a.x >= b.lo AND a.x <= b.hi"
    neither = "neither an equality nor a comparison between the two sides"
    elsewhere = "a condition that may fail and would be tested on different pairs than in Spark: (CAST("
    for kind, text, reason in (
        ("INNER", f"CAST(concat(a.name, b.name) AS INT) > 0 AND {ranged}", elsewhere),
        (
            "LEFT",
            f"{ranged} AND CAST(concat(a.name, b.name) AS INT) > 0",
            "a condition in addition to the keys of a left outer",
        ),
        ("LEFT", "a.name <> b.name AND a.x BETWEEN b.lo - 1 AND b.hi + 1", neither),
        ("INNER", "a.id IN (a.x % b.z, 3)", neither),
    ):
        query = f"SELECT {HINT} a.id, b.id FROM a {kind} JOIN b ON {text}"
        assert_declined(spark.sql(query), reason)
    # Nothing is null here, and Spark evaluates the cast for exactly the pairs that an index matches.
    query = f"SELECT {HINT} a.id, b.id FROM a JOIN b ON {ranged} AND CAST(concat(a.name, b.name) AS INT) > 0"
    assert condition(assert_same_outcome(spark, query, 1)) == "CAST_INVALID_INPUT"


FAILURES = {
    "a.t + b.t": ({"t": (127, 1)}, "BINARY_ARITHMETIC_OVERFLOW"),
    "-a.t": ({"t": (-128, 1)}, OVERFLOW),
    "(a.i + b.i) % b.l": ({"i": (MOST, 1), "l": (1, 0)}, OVERFLOW),
    "a.x % b.l + (a.i + b.i)": ({"i": (MOST, 1), "l": (1, 0)}, "REMAINDER_BY_ZERO"),
}


def test_every_error(spark: SparkSession) -> None:
    """Errors contain the values, the hint at a function that does not fail, and the query's fragment.

    If both expressions of a row fail, the first error is reported. All are branches of one formula, which is compiled
    once.
    """
    types = {"t": pa.int8(), "i": pa.int32(), "l": pa.int64(), "x": pa.float64()}
    branches = " ".join(f"WHEN {number} THEN {text} > 0" for number, text in enumerate(FAILURES))
    older = {"REMAINDER_BY_ZERO": "DIVIDE_BY_ZERO"} if spark.version < "4.1" else {}
    for number, (values, expected) in enumerate(FAILURES.values()):
        for side, name in enumerate(("c", "e")):
            columns = {key: pa.array([values.get(key, (3, 3))[side]], kind) for key, kind in types.items()}
            frame(spark, 1, id=[number], **columns).createOrReplaceTempView(name)
        query = f"SELECT {HINT} a.id FROM c a JOIN e b ON CASE a.id WHEN -1 THEN a.l > b.l {branches} END"
        assert condition(assert_same_outcome(spark, query, 1)) == older.get(expected, expected)


# Every operator for every type: the values that workers compute for a pair, compared with Spark's.

EXTREMES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tinyint": (pa.int8(), [-(2**7), 2**7 - 1, 0, -1, 3, None]),
    "smallint": (pa.int16(), [-(2**15), 2**15 - 1, 0, -1, 3, None]),
    "int": (pa.int32(), [LEAST, MOST, 0, -1, 3, None]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, 0, -1, 3, None]),
    "float": (pa.float32(), [math.nan, math.inf, -math.inf, -0.0, 3e38, 1.5, None]),
    "double": (pa.float64(), [math.nan, math.inf, -math.inf, -0.0, 1.7e308, -1.5, None]),
    "decimal(9,2)": (pa.decimal128(9, 2), [*map(Decimal, ("9999999.99", "-9999999.99", "0.00", "0.01")), None]),
    "decimal(17,0)": (pa.decimal128(17, 0), [Decimal(10**17 - 1), Decimal(1 - 10**17), Decimal(0), Decimal(-1), None]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), None]),
    "interval": (pa.duration("us"), [-(2**63), 2**63 - 1, 0, 1, None]),
}
OPERATIONS = [
    *(f"u {operator} v" for operator in ("+", "-", "*", "/", "%", "DIV", "=", "<=>", "<", "<=", ">", ">=")),
    *("-u", "+u", "abs(u)", "sqrt(u)", "u + v - u", "-(u % v)", "(u + v) % v", "u % (v + v)", "pmod(u, v)"),
    *("least(u, v)", "greatest(u, v)", "coalesce(u, v)", "if(u > v, u, v)", "CASE WHEN u = v THEN u END"),
    *("datediff(u, v)", "date_add(u, 2000000000)", "date_sub(u, 5)", "unix_date(u)"),
    *("try_add(u, v)", "try_subtract(u, v)", "try_multiply(u, v)", "try_divide(u, v)", "try_mod(u, v)"),
    *("CAST(u AS BIGINT)", "CAST(u AS DOUBLE)", "CAST(u AS INT)", "CAST(u AS DECIMAL(18, 3))"),
    *("u IS NULL", "u IN (v, 3)", "u > 0 AND u + v > 0", "u > 0 OR u % v = 0"),
]
FAILED_IN_SPARK = "fails"


def resolved(pairs: DataFrame, operation: str) -> Any:
    """Return Spark's expression, or None if the type has no such operation."""
    try:
        return pairs.selectExpr(f"{operation} AS value")._jdf.queryExecution().analyzed().expressions().head().child()
    except AnalysisException:
        return None


def outcomes_of_spark(pairs: DataFrame, expressions: list[Any]) -> list[list[Any]]:
    """Return Spark's result for each pair: a value (dates as days), None, or `FAILED_IN_SPARK`."""
    sql = pairs.sparkSession._jvm.org.apache.spark.sql  # type: ignore[union-attr]
    catalyst, columns = sql.catalyst.expressions, sql.classic.ExpressionUtils
    # `TryEval` turns errors into nulls. If `TryEval` of `IsNull` is null as well, the expression failed.
    days = [catalyst.UnixDate(each) if each.dataType().typeName() == "date" else each for each in expressions]
    tried = [part for each in days for part in (catalyst.TryEval(each), catalyst.TryEval(catalyst.IsNull(each)))]
    selected = [Column(columns.column(part)).alias(f"c{number}") for number, part in enumerate(tried)]
    # Otherwise, Spark would compute common subexpressions first, outside of `TryEval`.
    with configured(pairs.sparkSession, spark_sql_subexpressionElimination_enabled="false"):
        rows = pairs.select("i", *selected).orderBy("i").drop("i").collect()
    return [
        [FAILED_IN_SPARK if null is None else value for value, null in zip(row[::2], row[1::2], strict=True)]
        for row in rows
    ]


class Computed:
    """Evaluates a worker's formula for the values of two columns, pair by pair, without compiling it."""

    def __init__(self, value: Expression, u: pa.Array, v: pa.Array) -> None:
        self._value = value
        self._places: dict[ColumnPlace, ColumnLocation] = {}
        self._sides: tuple[list[Any], list[Any]] = ([], [])
        self._kinds: list[str | None] = []
        for node in value.columns():
            if node.place not in self._places:
                side = self._sides[node.source]
                self._places[node.place] = ColumnLocation(node.source == 0, len(side), len(side) + 1)
                side += _list_arrays([_convert_values((u, v)[node.source], node.place[-1])], [True], len(u))
                self._kinds += [node.number, None] if node.source == 0 else []
        self._holds: dict[str, Any] = {}

    def agrees(self, row: int, expected: Any) -> bool:
        if expected is FAILED_IN_SPARK or expected is None:
            verdict = self._verdict(expression.condition("is_null", self._value), row)
            return bool(verdict & FAILED) if expected else verdict == HIT
        assert self._value.type is not None
        equal = expression.condition("<=>", self._value, expression.literal(text_of(expected), self._value.type))
        return self._verdict(equal, row) == HIT

    def _verdict(self, formula: Expression, row: int) -> int:
        code = generate_expression_code(formula, self._places, self._kinds)
        if code.text not in self._holds:
            self._holds[code.text] = code.functions()
        load, holds = self._holds[code.text]
        # This function is an LLVM intrinsic, for which Python needs a substitute.
        holds.__globals__["multiply_overflows"] = lambda one, other: not -(1 << 63) <= int(one) * int(other) < 1 << 63
        with np.errstate(all="ignore"):
            return int(holds(load(self._sides[0], row), code.constants, self._sides[1], row))


def text_of(value: Any) -> str:
    """Return a value in the form that literals of a formula have."""
    if isinstance(value, timedelta):
        return str(value // timedelta(microseconds=1))
    return str(value).lower()


@pytest.mark.reduced("values", reason="Spark runs queries for each combination")
@pytest.mark.parametrize("ansi", [True, False])
@pytest.mark.parametrize("name", EXTREMES)
def test_every_operator(spark: SparkSession, name: str, ansi: bool) -> None:
    arrow_type, values = EXTREMES[name]
    us, vs = (pa.array(side, arrow_type) for side in zip(*itertools.product(values, values), strict=True))
    jvm = spark._jvm
    assert jvm is not None
    column_ref = jvm.org.apache.spark.sql.sparkext.joins.ColumnRef
    evaluator = getattr(getattr(jvm.org.apache.spark.sql.sparkext.expressions, "WorkerEvaluator$Compiled$"), "MODULE$")
    json_methods = getattr(getattr(jvm.org.json4s.jackson, "JsonMethods$"), "MODULE$")
    is_null = jvm.org.apache.spark.sql.catalyst.expressions.IsNull
    with configured(spark, **{"spark_sql_ansi_enabled": str(ansi).lower()}):
        pairs = frame(spark, 1, i=range(len(us)), u=us, v=vs)
        _, u, v = (pairs._jdf.queryExecution().analyzed().output().apply(number) for number in range(3))
        place = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        place = place.updated(u, column_ref(0, 0)).updated(v, column_ref(1, 0))
        covered, formulas = [], []
        for operation in OPERATIONS:
            expression = resolved(pairs, operation)
            formula = None if expression is None else evaluator.of(is_null(expression), place).toOption()
            if formula is not None and formula.isDefined():
                written = parse_expression(json.loads(json_methods.compact(formula.get())))
                covered.append((operation, expression))
                formulas.append(Computed(written.args[0], us, vs))
        truth = outcomes_of_spark(pairs, [expression for _, expression in covered])
    assert covered and not any("try_" in operation or "DIV" in operation for operation, _ in covered)
    for row, expected in enumerate(truth):
        for (operation, _), formula, value in zip(covered, formulas, expected, strict=True):
            assert formula.agrees(row, value), f"{operation} of {us[row]} and {vs[row]}: Spark makes {value}"
