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
    registered = {name.lower(): _RegisteredName(name, True, stream.columns, True) for name, stream in streams.items()}
    for query in program.queries:
        registered[query.name.lower()] = _RegisteredName(query.name, query.operator is not None, None)
    changed = True
    while changed:
        changed = False
        for query in program.queries:
            earlier = registered[query.name.lower()]
            try:
                columns = _Binder(registered, partly=True).plan(query.relation).columns
            except (BindingError, _UnknownColumnsError):
                continue
            updated = replace(
                earlier, columns=columns if earlier.columns is None else _widen_columns(earlier.columns, columns)
            )
            changed |= updated != earlier
            registered[query.name.lower()] = updated
    queries = {}
    for query in program.queries:
        try:
            queries[query.name] = _bind_query(query, registered)
        except BindingError as error:
            problems.append((error.at, error.text))
        except _UnknownColumnsError as error:
            problems.append((error.at, f"the columns of {error.name} cannot be derived: it reads only itself"))
    if problems:
        raise CqlProblems(problems)
    complete = {name: registered[name.lower()].columns or () for name in streams}
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
    declarations: list[RegisteredStream | RegisteredQuery] = [*program.streams, *program.queries]
    for declaration in sorted(declarations, key=lambda declaration: declaration.at):
        if declaration.name.lower() in seen:
            problems.append(
                (declaration.at, f"{declaration.name} is already registered at {seen[declaration.name.lower()]}")
            )
        seen.setdefault(declaration.name.lower(), declaration.at)


def _bind_stream(stream: RegisteredStream, problems: list[tuple[Position | None, str]]) -> BoundStream:
    columns: list[RelationColumn] = []
    for stream_column in stream.columns:
        kind = parse_type(stream_column.type)
        if kind is None:
            expected = f"expected one of {' '.join(TYPE_NAMES)}"
            if stream_column.type.lower().startswith("decimal"):
                expected = "cast it to double or bigint in the DataFrame"
            problems.append((stream_column.at, f"column {stream_column.name} of type {stream_column.type}: {expected}"))
            continue
        if any(column.name.lower() == stream_column.name.lower() for column in columns):
            problems.append((stream_column.at, f"two columns of {stream.name} are named {stream_column.name}"))
        columns.append(RelationColumn(stream_column.name, kind, stream_column.nullable))
    if len(columns) > MOST_COLUMNS:
        problems.append((stream.at, f"{stream.name} has {len(columns)} columns: expected at most {MOST_COLUMNS}"))
    return BoundStream(stream.name, tuple(columns))


def _widen_columns(left: tuple[RelationColumn, ...], right: tuple[RelationColumn, ...]) -> tuple[RelationColumn, ...]:
    """Return columns that hold the values of both sides, if such types exist; mismatches are reported later."""
    if len(left) != len(right):
        return left
    return tuple(
        RelationColumn(
            left_column.name,
            unify_types(left_column.type, right_column.type) or left_column.type,
            left_column.nullable or right_column.nullable,
        )
        for left_column, right_column in zip(left, right, strict=True)
    )


def _bind_query(query: RegisteredQuery, registered: dict[str, _RegisteredName]) -> BoundQuery:
    plan = _Binder(registered, partly=False).plan(query.relation)
    columns = registered[query.name.lower()].columns
    assert columns is not None, "a plan that can be made has columns"
    names = [column.name.lower() for column in columns]
    duplicate = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if duplicate is not None:
        raise BindingError(query.at, f"two columns of {query.name} are named {duplicate}: rename one of them with AS")
    for column, plan_column in zip(columns, plan.columns, strict=True):
        if column.type != plan_column.type:
            raise BindingError(
                query.at,
                f"column {column.name} of {query.name} has the types {spell_type(plan_column.type)} and"
                f" {spell_type(column.type)} in different parts of the query: use CAST",
            )
    return BoundQuery(query.name, query.operator, query.period, plan, query.delay, query.at, query.recursive)


class _Binder:
    """Binds relations. `partly`: omit branches of set operations whose columns are still unknown."""

    def __init__(self, registered: dict[str, _RegisteredName], *, partly: bool) -> None:
        self._registered, self._partly = registered, partly

    def plan(self, relation: Relation) -> Plan:
        """Bind a relation."""
        if isinstance(relation, Select):
            return self._bind_select(relation)
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
        for left_column, right_column in zip(left.columns, right.columns, strict=True):
            kind = unify_types(left_column.type, right_column.type)
            if kind is None:
                raise BindingError(
                    relation.at,
                    f"{relation.op.upper()} of column {left_column.name} ({spell_type(left_column.type)}) and column"
                    f" {right_column.name} ({spell_type(right_column.type)}): these types have no common type",
                )
            nullable = (
                left_column.nullable if relation.op == "except" else left_column.nullable or right_column.nullable
            )
            columns.append(RelationColumn(left_column.name, kind, nullable))
        common_columns = tuple(columns)
        return SetPlan(
            relation.op, relation.all, _cast(left, common_columns), _cast(right, common_columns), common_columns
        )

    def _bind_select(self, select: Select) -> SelectPlan:
        inputs = tuple(self._bind_input(source) for source in select.sources)
        aliases = [source.alias for source in select.sources]
        for position, source in enumerate(select.sources):
            if source.alias.lower() in [alias.lower() for alias in aliases[:position]]:
                raise BindingError(source.at, f"two sources are named {source.alias}: rename one of them with AS")
        columns_read = [read.columns for read in inputs]
        rows = RowScope(
            aliases, columns_read, lambda source, computed: self._add_computed_column(select.sources[source], computed)
        )
        formulas = FormulaTranslator(rows)
        conditions = []
        for condition in select.where:
            for part in split_conjunction(condition):
                conditions.append(require_type(formulas.translate_formula(part), BOOL, part.at, "a condition"))
        items = self._expand_items(select.items, rows)
        is_grouped = (
            bool(select.group)
            or select.having is not None
            or any(item.formula is not None and GroupScope.has_aggregate(item.formula) for item in items)
        )
        scope = rows
        group: tuple[Expression, ...] | None = None
        if is_grouped:
            keys = [formulas.translate_formula(formula) for formula in select.group]
            untyped_formula = next((f for f, key in zip(select.group, keys, strict=True) if key.type is None), None)
            if untyped_formula is not None:
                raise BindingError(untyped_formula.at, "GROUP BY of NULL, which has no type: use CAST")
            scope = GroupScope(rows, keys)
            group = tuple(key.known for key in keys)
        formulas = FormulaTranslator(scope)
        outputs, columns = [], []
        for position, item in enumerate(items):
            assert item.formula is not None, "stars are columns by now"
            typed = formulas.translate_formula(item.formula)
            if typed.type is None:
                raise BindingError(item.at, "a column of NULL has no type: use CAST")
            outputs.append(typed.known)
            columns.append(RelationColumn(item.alias or f"c{position + 1}", typed.type, typed.nullable))
        having = None
        if select.having is not None:
            having = require_type(formulas.translate_formula(select.having), BOOL, select.having.at, "HAVING")
        aggregates = tuple(scope.aggregates) if isinstance(scope, GroupScope) else ()
        for count, label in ((len(outputs), "columns"), (len(group or ()) + len(aggregates), "keys and aggregates")):
            if count > MOST_COLUMNS:
                raise BindingError(select.at, f"{count} {label}: expected at most {MOST_COLUMNS}")
        inputs = tuple(replace(read, columns=self._registered[read.name.lower()].columns or ()) for read in inputs)
        return SelectPlan(
            inputs, tuple(conditions), group, aggregates, having, tuple(outputs), select.distinct, tuple(columns)
        )

    def _add_computed_column(self, read: FromItem, computed: RelationColumn) -> int | None:
        """Add a computed column to a registered stream, unless it exists; return its index, None for other sources."""
        registered = self._registered[read.name.lower()]
        if not registered.is_registered or registered.columns is None:
            return None
        if computed not in registered.columns:
            if len(registered.columns) == MOST_COLUMNS:
                subject = "columns, including computed columns"
                raise BindingError(read.at, f"{registered.name} has more than {MOST_COLUMNS} {subject}")
            self._registered[read.name.lower()] = replace(registered, columns=(*registered.columns, computed))
        columns = self._registered[read.name.lower()].columns or ()
        return columns.index(computed)

    def _expand_items(self, items: Sequence[Item], rows: RowScope) -> list[Item]:
        """Return the named columns of a result, with stars expanded."""
        columns: list[Item] = []
        for item in items:
            if item.formula is not None:
                alias = item.alias or (item.formula.name if isinstance(item.formula, Name) else None)
                columns.append(replace(item, alias=alias))
                continue
            names = rows.names(item.of)
            if not names:
                raise BindingError(item.at, f"there is no source {item.of}. Sources: {', '.join(rows.aliases)}")
            columns += [Item(Name(of, name, item.at), name, None, item.at) for of, name in names]
        return columns

    def _bind_input(self, source: FromItem) -> Input:
        registered_name = self._registered.get(source.name.lower())
        if registered_name is None:
            names = ", ".join(registered.name for registered in self._registered.values())
            raise BindingError(source.at, f"{source.name} is not registered. Registered names: {names}")
        if registered_name.is_stream and source.window is None:
            raise BindingError(
                source.at, f"{registered_name.name} is a stream: it needs a window, [Now], [Range …] or [Rows …]"
            )
        if not registered_name.is_stream and source.window is not None:
            raise BindingError(source.window.at, f"{registered_name.name} is a relation: only streams have windows")
        if registered_name.columns is None:
            raise _UnknownColumnsError(registered_name.name, source.at)
        if source.window is None:
            return Input(registered_name.name, None, registered_name.columns)
        scope = RowScope([source.alias], [registered_name.columns])
        positions = tuple(scope.place(name)[1] for name in source.window.partition)
        window = BoundWindow(source.window.kind, source.window.amount, source.window.slide, positions)
        return Input(registered_name.name, window, registered_name.columns)


def _cast(plan: Plan, columns: tuple[RelationColumn, ...]) -> Plan:
    """Return a plan whose columns are cast to the types of `columns`."""
    typed = tuple(replace(column, type=target.type) for column, target in zip(plan.columns, columns, strict=True))
    if isinstance(plan, SetPlan):
        return replace(plan, left=_cast(plan.left, columns), right=_cast(plan.right, columns), columns=typed)
    outputs = tuple(
        TypedExpression(output, column.type, column.nullable).cast(target.type)
        for output, column, target in zip(plan.outputs, plan.columns, columns, strict=True)
    )
    return replace(plan, outputs=outputs, columns=typed)
