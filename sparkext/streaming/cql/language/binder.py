"""Resolves the names of a CQL text, and finds the types of the registered streams and queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sparkext.plans.expressions.expression import Expression
from sparkext.streaming.cql.language.formulas import (
    BindingError,
    FormulaTranslator,
    GroupScope,
    RowScope,
    TypedExpression,
    require_type,
    split_conjunction,
)
from sparkext.streaming.cql.language.problems import CqlProblems
from sparkext.streaming.cql.language.queries import (
    MOST_COLUMNS,
    BoundQuery,
    BoundStream,
    BoundWindow,
    Input,
    Plan,
    RelationColumn,
    SelectPlan,
    SetPlan,
)
from sparkext.streaming.cql.language.syntax import (
    FromItem,
    Item,
    Name,
    Position,
    Program,
    RegisteredQuery,
    RegisteredStream,
    Relation,
    Select,
)
from sparkext.streaming.cql.language.types import BOOL, TYPE_NAMES, parse_type, spell_type, unify_types


@dataclass(frozen=True)
class BoundProgram:
    """All streams and queries of a program by name, in the order of registration."""

    streams: Mapping[str, BoundStream]
    queries: Mapping[str, BoundQuery]
    program: Program


def bind(program: Program) -> BoundProgram:
    """Resolve all names.

    Queries may read each other, so columns are derived repeatedly until nothing changes. While the columns of one
    branch of UNION, EXCEPT or INTERSECT are unknown, the columns of the other branch are used.

    Raises
    ------
    CqlProblems
        Lists the problems of each query.
    """
    problems: list[tuple[Position | None, str]] = []
    _check_names(program, problems)
    streams = {stream.name: _bind_stream(stream, problems) for stream in program.streams}
    if problems:
        raise CqlProblems(problems)
    known = {name.lower(): _RegisteredName(name, True, stream.columns, True) for name, stream in streams.items()}
    for query in program.queries:
        known[query.name.lower()] = _RegisteredName(query.name, query.operator is not None, None)
    changed = True
    while changed:
        changed = False
        for query in program.queries:
            was = known[query.name.lower()]
            try:
                columns = _Binder(known, partly=True).plan(query.relation).columns
            except (BindingError, _UnknownColumnsError):
                continue
            now = replace(was, columns=columns if was.columns is None else _widen_columns(was.columns, columns))
            changed |= now != was
            known[query.name.lower()] = now
    queries = {}
    for query in program.queries:
        try:
            queries[query.name] = _bind_query(query, known)
        except BindingError as error:
            problems.append((error.at, error.text))
        except _UnknownColumnsError as error:
            problems.append((error.at, f"the columns of {error.name} cannot be derived: it reads only itself"))
    if problems:
        raise CqlProblems(problems)
    complete = {name: known[name.lower()].columns or () for name in streams}
    bound = {name: replace(stream, columns=complete[name]) for name, stream in streams.items()}
    return BoundProgram(bound, queries, program)


@dataclass(frozen=True)
class _RegisteredName:
    """A registered name. `columns`: None until they are found. `is_registered`: by REGISTER STREAM."""

    name: str
    is_stream: bool
    columns: tuple[RelationColumn, ...] | None
    is_registered: bool = False


class _UnknownColumnsError(Exception):
    """The columns of a query have not been found yet."""

    def __init__(self, name: str, at: Position) -> None:
        self.name, self.at = name, at
        super().__init__(name)


def _check_names(program: Program, problems: list[tuple[Position | None, str]]) -> None:
    seen: dict[str, Position] = {}
    registered: list[RegisteredStream | RegisteredQuery] = [*program.streams, *program.queries]
    for one in sorted(registered, key=lambda one: one.at):
        if one.name.lower() in seen:
            problems.append((one.at, f"{one.name} is already registered at {seen[one.name.lower()]}"))
        seen.setdefault(one.name.lower(), one.at)


def _bind_stream(stream: RegisteredStream, problems: list[tuple[Position | None, str]]) -> BoundStream:
    columns: list[RelationColumn] = []
    for one in stream.columns:
        kind = parse_type(one.type)
        if kind is None:
            expected = f"expected one of {' '.join(TYPE_NAMES)}"
            if one.type.lower().startswith("decimal"):
                expected = "cast it to double or bigint in the DataFrame"
            problems.append((one.at, f"column {one.name} of type {one.type}: {expected}"))
            continue
        if any(column.name.lower() == one.name.lower() for column in columns):
            problems.append((one.at, f"two columns of {stream.name} are named {one.name}"))
        columns.append(RelationColumn(one.name, kind, one.nullable))
    if len(columns) > MOST_COLUMNS:
        problems.append((stream.at, f"{stream.name} has {len(columns)} columns: expected at most {MOST_COLUMNS}"))
    return BoundStream(stream.name, tuple(columns))


def _widen_columns(left: tuple[RelationColumn, ...], right: tuple[RelationColumn, ...]) -> tuple[RelationColumn, ...]:
    """Return columns that hold the values of both sides, if such types exist; mismatches are reported later."""
    if len(left) != len(right):
        return left
    return tuple(
        RelationColumn(one.name, unify_types(one.type, two.type) or one.type, one.nullable or two.nullable)
        for one, two in zip(left, right, strict=True)
    )


def _bind_query(query: RegisteredQuery, known: dict[str, _RegisteredName]) -> BoundQuery:
    plan = _Binder(known, partly=False).plan(query.relation)
    found = known[query.name.lower()].columns
    assert found is not None, "a plan that can be made has columns"
    names = [one.name.lower() for one in found]
    double = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if double is not None:
        raise BindingError(query.at, f"two columns of {query.name} are named {double}: rename one of them with AS")
    for one, two in zip(found, plan.columns, strict=True):
        if one.type != two.type:
            raise BindingError(
                query.at,
                f"column {one.name} of {query.name} has the types {spell_type(two.type)} and {spell_type(one.type)} in"
                " different parts of the query: use CAST",
            )
    return BoundQuery(query.name, query.operator, query.period, plan, query.delay, query.at, query.recursive)


class _Binder:
    """Binds relations. `partly`: omit branches of set operations whose columns are still unknown."""

    def __init__(self, known: dict[str, _RegisteredName], *, partly: bool) -> None:
        self._known, self._partly = known, partly

    def plan(self, relation: Relation) -> Plan:
        """Bind a relation."""
        if isinstance(relation, Select):
            return self._select(relation)
        try:
            left: Plan | None = self.plan(relation.left)
        except _UnknownColumnsError:
            if not self._partly:
                raise
            left = None
        try:
            right: Plan | None = self.plan(relation.right)
        except _UnknownColumnsError:
            if left is None or not self._partly:
                raise
            return left
        assert right is not None, "a plan was made"
        if left is None:
            return right
        if len(left.columns) != len(right.columns):
            raise BindingError(
                relation.at,
                f"{relation.op.upper()} of {len(left.columns)} and {len(right.columns)} columns: expected equal"
                " numbers",
            )
        columns = []
        for one, two in zip(left.columns, right.columns, strict=True):
            kind = unify_types(one.type, two.type)
            if kind is None:
                raise BindingError(
                    relation.at,
                    f"{relation.op.upper()} of column {one.name} ({spell_type(one.type)}) and column {two.name}"
                    f" ({spell_type(two.type)}): these types have no common type",
                )
            nullable = one.nullable if relation.op == "except" else one.nullable or two.nullable
            columns.append(RelationColumn(one.name, kind, nullable))
        wanted = tuple(columns)
        return SetPlan(relation.op, relation.all, _cast(left, wanted), _cast(right, wanted), wanted)

    def _select(self, select: Select) -> SelectPlan:
        inputs = tuple(self._input(source) for source in select.sources)
        aliases = [source.alias for source in select.sources]
        for place, source in enumerate(select.sources):
            if source.alias.lower() in [alias.lower() for alias in aliases[:place]]:
                raise BindingError(source.at, f"two sources are named {source.alias}: rename one of them with AS")
        columns_read = [one.columns for one in inputs]
        rows = RowScope(aliases, columns_read, lambda source, made: self._place(select.sources[source], made))
        formulas = FormulaTranslator(rows)
        where = []
        for condition in select.where:
            for part in split_conjunction(condition):
                where.append(require_type(formulas.translate_formula(part), BOOL, part.at, "a condition"))
        named = self._items(select.items, rows)
        is_grouped = (
            bool(select.group)
            or select.having is not None
            or any(item.formula is not None and GroupScope.has_aggregate(item.formula) for item in named)
        )
        scope = rows
        group: tuple[Expression, ...] | None = None
        if is_grouped:
            keys = [formulas.translate_formula(formula) for formula in select.group]
            untyped = next((f for f, key in zip(select.group, keys, strict=True) if key.type is None), None)
            if untyped is not None:
                raise BindingError(untyped.at, "GROUP BY of NULL, which has no type: use CAST")
            scope = GroupScope(rows, keys)
            group = tuple(key.known for key in keys)
        formulas = FormulaTranslator(scope)
        outputs, columns = [], []
        for place, item in enumerate(named):
            assert item.formula is not None, "stars are columns by now"
            typed = formulas.translate_formula(item.formula)
            if typed.type is None:
                raise BindingError(item.at, "a column of NULL has no type: use CAST")
            outputs.append(typed.known)
            columns.append(RelationColumn(item.alias or f"c{place + 1}", typed.type, typed.nullable))
        having = None
        if select.having is not None:
            having = require_type(formulas.translate_formula(select.having), BOOL, select.having.at, "HAVING")
        aggregates = tuple(scope.aggregates) if isinstance(scope, GroupScope) else ()
        for values, what in ((len(outputs), "columns"), (len(group or ()) + len(aggregates), "keys and aggregates")):
            if values > MOST_COLUMNS:
                raise BindingError(select.at, f"{values} {what}: expected at most {MOST_COLUMNS}")
        inputs = tuple(replace(one, columns=self._known[one.name.lower()].columns or ()) for one in inputs)
        return SelectPlan(
            inputs, tuple(where), group, aggregates, having, tuple(outputs), select.distinct, tuple(columns)
        )

    def _place(self, read: FromItem, computed: RelationColumn) -> int | None:
        """Add a computed column to a registered stream, unless it exists; return its index, None for other sources."""
        known = self._known[read.name.lower()]
        if not known.is_registered or known.columns is None:
            return None
        if computed not in known.columns:
            if len(known.columns) == MOST_COLUMNS:
                what = "columns, including computed columns"
                raise BindingError(read.at, f"{known.name} has more than {MOST_COLUMNS} {what}")
            self._known[read.name.lower()] = replace(known, columns=(*known.columns, computed))
        columns = self._known[read.name.lower()].columns or ()
        return columns.index(computed)

    def _items(self, items: Sequence[Item], rows: RowScope) -> list[Item]:
        """Return the named columns of a result, with stars expanded."""
        found: list[Item] = []
        for item in items:
            if item.formula is not None:
                alias = item.alias or (item.formula.name if isinstance(item.formula, Name) else None)
                found.append(replace(item, alias=alias))
                continue
            names = rows.names(item.of)
            if not names:
                raise BindingError(item.at, f"there is no source {item.of}. Sources: {', '.join(rows.aliases)}")
            found += [Item(Name(of, name, item.at), name, None, item.at) for of, name in names]
        return found

    def _input(self, source: FromItem) -> Input:
        known = self._known.get(source.name.lower())
        if known is None:
            names = ", ".join(one.name for one in self._known.values())
            raise BindingError(source.at, f"{source.name} is not registered. Registered names: {names}")
        if known.is_stream and source.window is None:
            raise BindingError(source.at, f"{known.name} is a stream: it needs a window, [Now], [Range …] or [Rows …]")
        if not known.is_stream and source.window is not None:
            raise BindingError(source.window.at, f"{known.name} is a relation: only streams have windows")
        if known.columns is None:
            raise _UnknownColumnsError(known.name, source.at)
        if source.window is None:
            return Input(known.name, None, known.columns)
        scope = RowScope([source.alias], [known.columns])
        places = tuple(scope.place(name)[1] for name in source.window.partition)
        window = BoundWindow(source.window.kind, source.window.amount, source.window.slide, places)
        return Input(known.name, window, known.columns)


def _cast(plan: Plan, columns: tuple[RelationColumn, ...]) -> Plan:
    """Return a plan whose columns are cast to the types of `columns`."""
    typed = tuple(replace(one, type=two.type) for one, two in zip(plan.columns, columns, strict=True))
    if isinstance(plan, SetPlan):
        return replace(plan, left=_cast(plan.left, columns), right=_cast(plan.right, columns), columns=typed)
    outputs = tuple(
        TypedExpression(output, own.type, own.nullable).cast(wanted.type)
        for output, own, wanted in zip(plan.outputs, plan.columns, columns, strict=True)
    )
    return replace(plan, outputs=outputs, columns=typed)
