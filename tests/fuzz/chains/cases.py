"""Random chains of joins as plain data: tables, joins and settings; and the equivalent SQL.

The first join of every case is drawn from the product of kinds, algorithms, budgets, null rates and
duplication. As many cases as the product has members cover all of it. Everything else is drawn by the seed.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from sparkext.plans.expressions.expression import Expression, column
from sparkext.plans.expressions.key_types import KeyType, common_key_type, parse_key_type
from sparkext.plans.expressions.number_types import MOST_DIGITS
from sparkext.plans.pipeline.spec import BUILD_PRESERVING, DIRECTIONS, MOST_COMPARED, RANGE_OPERATORS
from sparkext.rows.types import arrow_key_type
from tests.fuzz.chains.formulas import FormulaMaker, formula_sql

KINDS = ("inner", "left", "right", "full", "semi", "anti", "existence", "as of", "formula")
"""Forms of a case's first join: one of Spark's join types, or one of the other forms, whose join type is drawn."""

_KINDS_OF_FORM = {
    "as of": ("inner", "left"),
    "formula": ("inner", "left", "semi", "anti", "existence", *BUILD_PRESERVING),
}
_WITHOUT_COLUMNS = ("semi", "anti", "existence")
ALGORITHMS = ("auto", "hash", "sort_merge")
BUDGETS = {"one row": 1, "tiny": 7, "ample": 131_072}
NULL_RATES = (0.0, 0.1, 0.5, 1.0)
DUPLICATION = ("none", "some", "heavy", "one key")


class Combination(NamedTuple):
    """The properties of a case's first join."""

    kind: str
    algorithm: str
    budget: str
    null_rate: float
    duplication: str


COMBINATIONS = [Combination(*of) for of in itertools.product(KINDS, ALGORITHMS, BUDGETS, NULL_RATES, DUPLICATION)]

ROWS = (0, 1, 2, 5, 12, 40, 150, 600, 4_000)
_ROWS_WEIGHTS = (1, 1, 1, 4, 6, 8, 8, 4, 1)

# Small budgets make results row by row. These limits keep a case within milliseconds.
_MOST_RESULT_ROWS = {"one row": 400, "tiny": 2_000, "ample": 40_000}


def _decimal(precision: int, scale: int) -> KeyType:
    return KeyType("decimal", precision, scale)


_INTEGERS = tuple(KeyType(f"int{bits}") for bits in (8, 16, 32, 64))
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_EPOCH = dt.datetime(2024, 3, 10, 1, 30)  # half an hour before New York's clocks go forward


@dataclass(frozen=True)
class Family:
    """Key types that can be compared with each other, and a pool of values: `value(number)` fits all of these types."""

    types: tuple[KeyType, ...]
    value: Callable[[int], Any]


def _float(number: int) -> float:
    special = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -math.nan, 1e30)
    return special[number] if number < len(special) else (number - 20) * 0.5


def _text(number: int) -> str:
    special = ("", "a", "a\0", "ä", "a ", "A", "key" * 20, "key" * 20 + "s")
    return special[number] if number < len(special) else "k" * (number % 17) + str(number)


FAMILIES = {
    "dense integers": Family(_INTEGERS, lambda number: number - 3),
    "sparse integers": Family(_INTEGERS, lambda number: (number * 0x9E3779B97F4A7C15) ^ (number >> 3)),
    "wide integers": Family((KeyType("int64"),), lambda number: ((number * 7919) << 40) - 5),
    "floats": Family((KeyType("float32"), KeyType("float64")), _float),
    "numbers": Family(
        (KeyType("int16"), KeyType("int32"), KeyType("int64"), KeyType("float64")), lambda number: number - 3
    ),
    "doubles": Family((KeyType("float64"),), _float),
    "decimals": Family((_decimal(9, 2), _decimal(18, 4), _decimal(12, 0)), lambda number: Decimal(number * 7 - 20)),
    "wide decimals": Family(
        (_decimal(30, 2), _decimal(25, 0), _decimal(38, 4)), lambda number: Decimal(10**20 * (number - 2) + number)
    ),
    "decimals and integers": Family(
        (KeyType("int32"), KeyType("int64"), _decimal(10, 2), _decimal(24, 3)), lambda number: number - 3
    ),
    "dates": Family((KeyType("date"),), lambda number: dt.date(1969, 12, 25) + dt.timedelta(days=number)),
    "timestamps": Family(
        (KeyType("timestamp"),), lambda number: (_EPOCH + dt.timedelta(minutes=number)).replace(tzinfo=dt.timezone.utc)
    ),
    "local times": Family((KeyType("timestamp_ntz"),), lambda number: _EPOCH + dt.timedelta(microseconds=number)),
    "booleans": Family((KeyType("bool"),), lambda number: number % 2 == 0),
    "strings": Family((KeyType("string"),), _text),
    "binary": Family((KeyType("binary"),), lambda number: _text(number).encode() + b"\xff" * (number % 3)),
}


_FAMILIES_OF_FORM = {
    "as of": (
        "dense integers",
        "sparse integers",
        "wide integers",
        "decimals",
        "decimals and integers",
        "dates",
        "timestamps",
        "local times",
    ),
    "formula": ("dense integers", "sparse integers", "wide integers", "floats", "doubles", "numbers"),
}


def typed(value: Any, to: KeyType, generator: random.Random) -> Any:
    """Convert a value of a family's pool to one of the family's types."""
    bits = _BITS.get(to.name)
    if bits is not None:
        # Some values of wide types differ only in their upper half, which a wrong cast would cut off.
        upper = generator.choice((1, -1)) << (bits // 2) if bits > 8 and generator.random() < 0.05 else 0
        return ((int(value) + upper + (1 << (bits - 1))) % (1 << bits)) - (1 << (bits - 1))
    if to.name == "decimal":
        return Decimal(value).quantize(Decimal(1).scaleb(-to.scale), context=_EXACT)
    return float(value) if to.name.startswith("float") else value


_EXACT = Context(prec=60)


@dataclass(frozen=True)
class Column:
    """Key column `number` of a table."""

    source: int
    number: int

    @property
    def name(self) -> str:
        """The name, which is unique within the case."""
        return f"s{self.source}_k{self.number}"


@dataclass(frozen=True)
class Comparison:
    """`left op right`: an earlier column and one of the joined table; `op` is `=`, `<=>`, or a comparison of order."""

    left: Column
    op: str
    right: Column
    type: str

    def sql(self) -> str:
        """Return the condition as SQL that Spark and DuckDB share."""
        op = "IS NOT DISTINCT FROM" if self.op == "<=>" else self.op
        return f"{self.left.name} {op} {self.right.name}"


@dataclass(frozen=True)
class Nearest:
    """An as-of condition: among the rows with equal keys, the one with the nearest value (see `spec.AsOf`)."""

    left: Column
    right: Column
    type: str
    direction: str
    exact: bool
    tolerance: int | None


@dataclass(frozen=True)
class Join:
    """One join of the chain. `condition` and `formula` are conditions in addition to keys and ranges."""

    kind: str
    keys: tuple[Comparison, ...]
    ranges: tuple[Comparison, ...] = ()
    condition: tuple[Comparison, ...] = ()
    as_of: Nearest | None = None
    formula: Expression | None = None

    def sql(self) -> str:
        """Return its condition without the as-of part."""
        parts = [comparison.sql() for comparison in (*self.keys, *self.ranges, *self.condition)]
        if self.formula is not None:
            parts.append(formula_sql(self.formula, lambda node: Column(node.source, node.column).name))
        return " AND ".join(parts) or "true"


@dataclass
class Case:
    """Tables, the first of which is the probe side; one join for each other table; outputs; settings.

    `switches` are settings that only a pipeline in this process has.
    """

    name: str
    combination: Combination
    tables: list[pa.Table]
    joins: list[Join]
    outputs: list[str]
    settings: dict[str, Any]
    switches: dict[str, Any] = field(default_factory=dict)

    def columns(self, joins: int) -> dict[str, pa.DataType]:
        """Return names and types of the columns after `joins` joins."""
        found = dict(zip(self.tables[0].schema.names, self.tables[0].schema.types, strict=True))
        for number, join in enumerate(self.joins[:joins], 1):
            schema = self.tables[number].schema
            if join.kind == "existence":
                found[found_name(number)] = pa.bool_()
            elif join.kind not in _WITHOUT_COLUMNS:
                found |= dict(zip(schema.names, schema.types, strict=True))
        return found

    def describe(self) -> str:
        """Return everything that a reader needs to reproduce the case by hand."""
        lines = [f"case {self.name}: {self.combination}", spark_sql(self), f"settings {self.settings}"]
        lines += [f"join {number}: {join.as_of}" for number, join in enumerate(self.joins, 1) if join.as_of]
        lines.append(f"switches {self.switches}")
        for number, table in enumerate(self.tables):
            types = ", ".join(f"{column.name}: {column.type}" for column in table.schema)
            lines.append(f"t{number} ({types}), {table.num_rows} rows")
            lines += [f"    {tuple(row.values())}" for row in table.slice(0, 12).to_pylist()]
        return "\n".join(lines)


def found_name(source: int) -> str:
    """Return the name of the column in which an existence join with this table reports whether there is a match."""
    return f"s{source}_found"


def make_case(seed: int, number: int) -> Case:
    """Return case `number` of a seed. It is always the same."""
    order = list(range(len(COMBINATIONS)))
    random.Random(f"order {seed}").shuffle(order)
    combination = COMBINATIONS[order[number % len(order)]]
    return _Maker(random.Random(f"case {seed} {number}"), combination).case(f"{seed}:{number}")


class _Maker:
    """Draws one case."""

    def __init__(self, generator: random.Random, combination: Combination) -> None:
        self.r = generator
        self.combination = combination
        self.families = [generator.choice(sorted(FAMILIES)) for _ in range(generator.choice((1, 1, 2, 3)))]
        if combination.kind in _FAMILIES_OF_FORM:
            self.families[0] = generator.choice(_FAMILIES_OF_FORM[combination.kind])
        self.types: list[list[KeyType]] = []
        self.joins: list[Join] = []

    def case(self, name: str) -> Case:
        r = self.r
        count = r.choice((1, 1, 2, 3))
        self.types = [[r.choice(FAMILIES[family].types) for family in self.families] for _ in range(count + 1)]
        visible = [0]
        for source in range(1, count + 1):
            kind = self.combination.kind if source == 1 else r.choice(KINDS)
            self.joins.append(self._join(kind, visible, source))
            if self.joins[-1].kind not in _WITHOUT_COLUMNS:
                visible.append(source)
        traits = [(self.combination.null_rate, self.combination.duplication)] * 2
        traits += [(r.choice(NULL_RATES[:3]), r.choice(DUPLICATION)) for _ in range(count - 1)]
        rows = self._fitting(r.choices(ROWS, _ROWS_WEIGHTS, k=count + 1), traits)
        pools = [self._pool(family, max(rows)) for family in self.families]
        tables = [self._table(source, rows[source], *traits[source], pools) for source in range(count + 1)]
        case = Case(name, self.combination, tables, self.joins, [], self._settings(), self._switches())
        others = [column for column in case.columns(count) if not column.endswith("_id")]
        case.outputs = [f"s{source}_id" for source in visible] + r.sample(others, min(len(others), r.randrange(5)))
        case.outputs += [column for column in others if column.endswith("_found") and column not in case.outputs]
        return case

    def _join(self, form: str, visible: Sequence[int], source: int) -> Join:
        r = self.r
        kind = r.choice(_KINDS_OF_FORM.get(form, (form,)))
        if form == "as of" and (as_of := self._as_of(visible, source)) is not None:
            return Join(kind, self._some_keys(visible, source), as_of=as_of)
        if form == "formula" and (formula := self._formula(visible, source)) is not None:
            return Join(kind, self._some_keys(visible, source) if r.random() < 0.4 else (), formula=formula)
        join = self._compared_join(kind, visible, source)
        if r.random() < 0.8:
            return join
        return replace(join, condition=self._condition(visible, source))

    def _some_keys(self, visible: Sequence[int], source: int) -> tuple[Comparison, ...]:
        numbers = [number for number in range(len(self.families)) if self.r.random() < 0.5]
        keys = [self._compared(visible, source, number, self.r.choice(("=", "=", "<=>"))) for number in numbers]
        return tuple(key for key in keys if key is not None)

    def _as_of(self, visible: Sequence[int], source: int) -> Nearest | None:
        r = self.r
        number = r.randrange(len(self.families)) if source > 1 else 0
        left = r.choice(visible)
        common = self._type(left, source, number)
        if common is None or self.families[number] not in _FAMILIES_OF_FORM["as of"]:
            return None
        if common.name == "decimal" and common.precision > MOST_DIGITS:
            return None
        tolerance = r.choice((None, None, 0, 3, 250, 90_000_000, 1 << 50))
        places = Column(left, number), Column(source, number)
        return Nearest(*places, str(common), r.choice(DIRECTIONS), r.random() < 0.7, tolerance)

    def _formula(self, visible: Sequence[int], source: int) -> Expression | None:
        """Return a formula over numeric columns of both sides, or None if there are none."""
        sides = [
            [
                column(side, n, self.types[side][n])
                for side in sources
                for n, family in enumerate(self.families)
                if family in _FAMILIES_OF_FORM["formula"] and self.types[side][n].name != "decimal"
            ]
            for sources in (visible, [source])
        ]
        return FormulaMaker(self.r, *sides).make() if all(sides) else None

    def _condition(self, visible: Sequence[int], source: int) -> tuple[Comparison, ...]:
        """Return a comparison that is evaluated for pairs, of a type that is supported there."""
        number = self.r.randrange(len(self.families))
        found = self._compared(visible, source, number, self.r.choice(RANGE_OPERATORS))
        covered = found is not None and parse_key_type(found.type).name not in ("float32", "float64", "bool")
        return (found,) if found is not None and covered else ()

    def _compared_join(self, kind: str, visible: Sequence[int], source: int) -> Join:
        r = self.r
        ranged = r.random() < 0.2
        share = 0.5 if ranged else 0.8
        columns = [number for number in range(len(self.families)) if r.random() < share]
        keys = [self._compared(visible, source, number, r.choice(("=", "=", "=", "<=>"))) for number in columns]
        keys = [key for key in keys if key is not None]
        ranges = list(self._ranges(visible, source)) if ranged else []
        if not keys and not ranges:
            keys = [Comparison(Column(0, 0), "=", Column(source, 0), str(self._type(0, source, 0)))]
        return Join(kind, tuple(keys), tuple(ranges))

    def _ranges(self, visible: Sequence[int], source: int) -> Iterator[Comparison]:
        compared: set[tuple[int, str]] = set()
        for _ in range(self.r.randrange(1, 4)):
            op = self.r.choice(RANGE_OPERATORS)
            found = self._compared(visible, source, self.r.randrange(len(self.families)), op)
            if found is None:
                continue
            column = (found.right.number, found.type)
            if column in compared or len(compared) < MOST_COMPARED:
                compared.add(column)
                yield found

    def _compared(self, visible: Sequence[int], source: int, number: int, op: str) -> Comparison | None:
        left = self.r.choice(visible)
        common = self._type(left, source, number)
        return None if common is None else Comparison(Column(left, number), op, Column(source, number), str(common))

    def _type(self, left: int, right: int, number: int) -> KeyType | None:
        return common_key_type(self.types[left][number], self.types[right][number])

    def _fitting(self, rows: list[int], traits: Sequence[tuple[float, str]]) -> list[int]:
        """Halve the largest tables until the joins cannot emit too many rows."""
        most = _MOST_RESULT_ROWS[self.combination.budget]
        while self._largest_result(rows, traits) > most:
            largest = rows.index(max(rows))
            rows[largest] //= 2
        return rows

    def _largest_result(self, rows: Sequence[int], traits: Sequence[tuple[float, str]]) -> float:
        result = float(rows[0])
        for join, count, (null_rate, duplication) in zip(self.joins, rows[1:], traits[1:], strict=True):
            small = any(self.families[key.right.number] == "booleans" for key in join.keys)
            share = max({"one key": 1.0, "heavy": 0.3}.get(duplication, 0.02), 0.5 * small)
            if any(key.op == "<=>" for key in join.keys):
                share = max(share, null_rate)
            fan_out = count * share if join.keys else count
            if join.kind not in _WITHOUT_COLUMNS:
                result = max(result, 1.0) * max(1.0, fan_out) + (count if join.kind in BUILD_PRESERVING else 0)
        return result

    def _pool(self, family: str, rows: int) -> list[Any]:
        numbers = list(range(int(rows * 1.3) + 8))
        if family not in ("dense integers", "dates"):
            self.r.shuffle(numbers)
        return [FAMILIES[family].value(number) for number in numbers]

    def _table(
        self, source: int, rows: int, null_rate: float, duplication: str, pools: Sequence[Sequence[Any]]
    ) -> pa.Table:
        r = self.r
        columns: dict[str, pa.Array] = {f"s{source}_id": pa.array(range(rows), pa.int64())}
        for number, pool in enumerate(pools):
            key_type = self.types[source][number]
            values = [
                None if r.random() < null_rate else typed(value, key_type, r)
                for value in self._drawn(pool, rows, duplication)
            ]
            columns[Column(source, number).name] = pa.array(values, arrow_key_type(key_type))
        texts = [None if r.random() < 0.2 else "payload " * r.randrange(4) for _ in range(rows)]
        columns[f"s{source}_text"] = pa.array(texts, pa.string())
        columns[f"s{source}_price"] = pa.array(
            [r.choice((None, -0.0, 2.5, math.nan)) for _ in range(rows)], pa.float64()
        )
        return pa.table(columns)

    def _drawn(self, pool: Sequence[Any], rows: int, duplication: str) -> list[Any]:
        if duplication == "none":
            return self.r.sample(pool, rows)
        among = {"some": max(1, rows // 2), "heavy": 4, "one key": 1}[duplication]
        return self.r.choices(pool[:among], k=rows)

    def _settings(self) -> dict[str, Any]:
        r = self.r
        settings: dict[str, Any] = {
            "spark.sparkext.algorithm": self.combination.algorithm,
            "spark.sparkext.morsel.maxRows": BUDGETS[self.combination.budget],
            "spark.sparkext.debug.hashMask": r.choice(("0xffffffffffffffff",) * 4 + ("0xff", "0x0")),
        }
        # A generator of its own keeps cases as they were before join orders were added.
        order = random.Random(f"order {r.getstate()[1][:4]}").choice(("measured", "query", "random", "random"))
        settings["spark.sparkext.debug.joinOrder"] = order
        if r.random() < 0.15:
            settings["spark.sparkext.morsel.maxBytes"] = r.choice((1, 100, 4096))
        if r.random() < 0.3:
            settings["spark.sparkext.morsel.minRows"] = 1
        return settings

    def _switches(self) -> dict[str, Any]:
        r = self.r
        return {
            "cores": r.choice((1, 1, 2, 3)),
            "headroom": r.choice((None, None, 1, 1 << 60)),
            "batch_rows": r.choice((1, 3, 17, 100, 100_000)),
            "least_part_rows": r.choice((2, 4_096)),
            "narrow_rows": r.choice((0, 1 << 31)),
            "clustered_rows_per_key": r.choice((1, 4)),
            "shuffle": r.randrange(1 << 30),
        }


_SPARK_WORDS = {"semi": "LEFT SEMI", "anti": "LEFT ANTI"}
_ASOF_OPERATORS = {("backward", True): ">=", ("backward", False): ">", ("forward", True): "<=", ("forward", False): "<"}


def in_sql(case: Case) -> Case:
    """Return the case with as-of joins that Spark's SQL can express: without tolerance, and in one direction."""

    def join_in_sql(join: Join) -> Join:
        as_of = join.as_of
        if as_of is None:
            return join
        direction = "backward" if as_of.direction == "nearest" else as_of.direction
        return replace(join, as_of=replace(as_of, tolerance=None, direction=direction))

    return replace(case, joins=list(map(join_in_sql, case.joins)))


def spark_sql(case: Case) -> str:
    """Return the query for Spark, with every table but the first as a build side (see `in_sql`)."""
    query = "t0"
    for number, join in enumerate(case.joins, 1):
        hint = f"/*+ PIPELINED_JOIN(t{number}) */"
        if join.kind == "existence":
            exists = f"EXISTS (SELECT {hint} 1 FROM t{number} WHERE {join.sql()})"
            query = f"(SELECT *, {exists} AS {found_name(number)} FROM {query})"
        else:
            query = f"(SELECT {hint} * FROM {query} {_spark_join(join, number)})"
    return f"SELECT {', '.join(case.outputs)} FROM {query}"


def _spark_join(join: Join, number: int) -> str:
    words = _SPARK_WORDS.get(join.kind, join.kind.upper())
    if join.as_of is None:
        return f"{words} JOIN t{number} ON {join.sql()}"
    near = join.as_of
    match = f"{near.left.name} {_ASOF_OPERATORS.get((near.direction, near.exact), 'is nearest to')} {near.right.name}"
    on = f" ON {join.sql()}" if join.keys else ""
    return f"{'LEFT ' * (join.kind == 'left')}ASOF JOIN t{number} MATCH_CONDITION ({match}){on}"


def duckdb_sql(case: Case) -> str:
    """Return the query for DuckDB, with semi and anti joins as EXISTS, because its SEMI JOIN loses rows of ranges."""
    query = "SELECT * FROM t0"
    for number, join in enumerate(case.joins, 1):
        exists = f"EXISTS (SELECT 1 FROM t{number} WHERE {join.sql()})"
        if join.as_of is not None:
            query = _nearest_sql(query, number, join, join.as_of)
        elif join.kind == "existence":
            query = f"SELECT *, {exists} AS {found_name(number)} FROM ({query})"
        elif join.kind in _WITHOUT_COLUMNS:
            query = f"SELECT * FROM ({query}) WHERE {'NOT ' * (join.kind == 'anti')}{exists}"
        else:
            query = f"SELECT * FROM ({query}) {join.kind.upper()} JOIN t{number} ON {join.sql()}"
    return f"SELECT {', '.join(case.outputs)} FROM ({query})"


def _nearest_sql(query: str, number: int, join: Join, near: Nearest) -> str:
    """Return an as-of join as plain SQL.

    DuckDB's own ASOF JOIN has no tolerance, and takes any of several equally near rows.
    """
    distance = f"{_ordinal(near.left, near.type)} - {_ordinal(near.right, near.type)}"
    side = {"backward": "away >= 0", "forward": "away <= 0", "nearest": "true"}[near.direction]
    wanted = ["away IS NOT NULL", side] + ["away <> 0"] * (not near.exact)
    if near.tolerance is not None:
        wanted.append(f"abs(away) <= {near.tolerance}")
    last_first = {"backward": "-near", "forward": "near", "nearest": "CASE WHEN away >= 0 THEN -near ELSE near END"}
    return f"""SELECT * EXCLUDE (row_{number}, of_row_{number}) FROM (
        WITH so_far AS MATERIALIZED (SELECT *, row_number() OVER () AS row_{number} FROM ({query})),
        pairs AS (SELECT row_{number} AS of_row, s{number}_id AS near, {distance} AS away
                  FROM so_far JOIN t{number} ON {join.sql()}),
        ranked AS (SELECT of_row, near, row_number() OVER (PARTITION BY of_row ORDER BY abs(away), away < 0,
                   {last_first[near.direction]}) AS place FROM pairs WHERE {" AND ".join(wanted)}),
        picked AS (SELECT of_row AS of_row_{number}, t{number}.*
                   FROM ranked JOIN t{number} ON near = s{number}_id AND place = 1)
        SELECT * FROM so_far {join.kind.upper()} JOIN picked ON row_{number} = of_row_{number})"""


def _ordinal(column: Column, key_type: str) -> str:
    """Return a column as a number in the unit of its type: days, microseconds, unscaled digits."""
    common = parse_key_type(key_type)
    if common.name == "date":
        return f"CAST({column.name} - DATE '1970-01-01' AS HUGEINT)"
    if common.name.startswith("timestamp"):
        return f"CAST(epoch_us({column.name}) AS HUGEINT)"
    if common.name == "decimal":
        digits = f"DECIMAL({common.precision}, {common.scale})"
        return f"CAST(CAST({column.name} AS {digits}) * {10**common.scale} AS HUGEINT)"
    return f"CAST({column.name} AS HUGEINT)"
