"""The graph of queries: delays that break its cycles, the order in which queries run, and monotonicity.

A query reads streams and other queries. The output of a delay has a later time than its input, so nothing flows through
a delay within one timestamp. Without the edges that have a delay, the graph must not have cycles (delay-based time
splitting, `docs/papers.md` 2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sparkext.streaming.cql.language.binder import BoundProgram, bind
from sparkext.streaming.cql.language.problems import CqlProblems
from sparkext.streaming.cql.language.queries import EPSILON, BoundQuery, BoundStream, Plan, SetPlan
from sparkext.streaming.cql.language.syntax import Program


@dataclass(frozen=True)
class Graph:
    """Streams and queries by name; every cycle has a delay. `inserted`: queries that were given a delay automatically.

    `program`: the syntax from which they were bound.
    """

    streams: Mapping[str, BoundStream]
    queries: Mapping[str, BoundQuery]
    program: Program
    inserted: tuple[str, ...] = ()

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The queries in the order in which they run within a timestamp."""
        order: list[str] = []
        waiting = list(self.queries)
        while waiting:
            ready = next(name for name in waiting if {*self._before(name)} <= {*order})
            order.append(ready)
            waiting.remove(ready)
        return tuple(order)

    def _before(self, name: str) -> list[str]:
        """Return the queries whose results of the same timestamp a query needs, except a recursive query itself."""
        return _list_undelayed_reads(self.queries, name)

    def is_delayed(self, name: str) -> bool:
        """Whether the rows of a query are emitted with a delay."""
        return name in self.queries and self.queries[name].delay is not None

    def is_stream(self, name: str) -> bool:
        """Whether a name denotes a stream, and not a relation."""
        return name in self.streams or self.queries[name].operator is not None

    @cached_property
    def components(self) -> tuple[tuple[str, ...], ...]:
        """The queries of each strongly connected component that has a cycle, in the order in which they run."""
        components = find_components({name: self._queries_read(name) for name in self.queries})
        return tuple(
            tuple(name for name in self.order if name in part)
            for part in components
            if len(part) > 1 or next(iter(part)) in self._queries_read(next(iter(part)))
        )

    def _queries_read(self, name: str) -> list[str]:
        return [read for read in self.queries[name].reads() if read in self.queries]

    def needed(self, outputs: Iterable[str]) -> Graph:
        """Return the part of the graph on which some queries depend."""
        names_needed: set[str] = set()
        waiting = list(outputs)
        while waiting:
            name = waiting.pop()
            if name not in names_needed:
                names_needed.add(name)
                waiting += self.queries[name].reads() if name in self.queries else ()
        if names_needed == {*self.streams, *self.queries}:
            return self
        # Binding again removes columns of streams that are computed for other queries only.
        part = bind(self.program.part(names_needed))
        queries = {name: replace(query, delay=self.queries[name].delay) for name, query in part.queries.items()}
        return Graph(part.streams, queries, part.program, tuple(name for name in self.inserted if name in names_needed))

    def is_monotone(self, name: str) -> bool:
        """Whether further rows of its inputs never remove a row from the result of a query."""
        query = self.queries[name]
        windows = (read.window for select in query.selects() for read in select.inputs)
        if any(window is not None and window.kind == "rows" for window in windows):
            return False
        return query.operator != "dstream" and _is_monotone(query.plan)

    def is_momentary(self, name: str) -> bool:
        """Whether the rows of a query's relation exist for one timestamp only: they all depend on a window [Now]."""
        return self._is_momentary_plan(self.queries[name].plan)

    def _is_momentary_plan(self, plan: Plan) -> bool:
        if isinstance(plan, SetPlan):
            left = self._is_momentary_plan(plan.left)
            return left if plan.op == "except" else left and self._is_momentary_plan(plan.right)
        for read in plan.inputs:
            if read.window is not None and read.window.kind == "now":
                return True
            is_open = read.window is None and not self.is_delayed(read.name)
            if is_open and not self.queries[read.name].recursive and self.is_momentary(read.name):
                return True
        return False

    @cached_property
    def may_go_on(self) -> tuple[str, ...]:
        """Queries that may have work for ever after the last row: periods, and cycles with a delay longer than ε."""
        on_cycles = {name for part in self.components for name in part}
        return tuple(
            name
            for name, query in self.queries.items()
            if query.period is not None or (name in on_cycles and query.delay is not None and query.delay > EPSILON)
        )


def build_graph(bound: BoundProgram, missing_delay: str = "error") -> Graph:
    """Return the graph of queries. `missing_delay`: "error", or "insert" to give cycles without a delay a delay of ε.

    Raises
    ------
    CqlProblems
        There is a cycle without a delay, or the output of a query is not well defined.
    """
    queries, inserted = dict(bound.queries), []
    problems = []
    while True:
        cycle = _find_cycle(queries)
        if cycle is None:
            break
        first = min(cycle, key=[*queries].index)
        cycle = cycle[cycle.index(first) :] + cycle[: cycle.index(first)]
        streams_on_cycle = [name for name in cycle if queries[name].operator is not None]
        suggestions = " or ".join(
            f"{(queries[name].operator or '').upper()}(…)<Now> in {name}" for name in streams_on_cycle
        )
        if missing_delay == "insert" and streams_on_cycle:
            inserted.append(streams_on_cycle[-1])
            queries[streams_on_cycle[-1]] = replace(queries[streams_on_cycle[-1]], delay=EPSILON)
            continue
        cycle_text = spell_cycle(cycle)
        advice = (
            f"add a delay, as in {suggestions}"
            if streams_on_cycle
            else "make one of the queries a stream, as in ISTREAM(…)<Now>"
        )
        problems.append(
            (queries[cycle[0]].at, f"the cycle {cycle_text} has no delay, so its result depends on itself: {advice}")
        )
        raise CqlProblems(problems)
    graph = Graph(bound.streams, queries, bound.program, tuple(inserted))
    for query in queries.values():
        if query.recursive and not _is_fixpoint(query.plan):
            problems.append(
                (
                    query.at,
                    f"{query.name} is recursive, but not a UNION of SELECT without aggregates: use a delay instead",
                )
            )
        if query.operator == "rstream" and query.period is None and not graph.is_momentary(query.name):
            problems.append(
                (
                    query.at,
                    f"RSTREAM of {query.name} emits all rows at every instant: add a period, as in"
                    " RSTREAM[1 second](…)",
                )
            )
    if problems:
        raise CqlProblems(problems)
    return graph


def spell_cycle(names: Sequence[str]) -> str:
    """Return the queries of a cycle as text; the first one is repeated at the end."""
    return " ▶ ".join([*names, names[0]])


def _is_monotone(plan: Plan) -> bool:
    if isinstance(plan, SetPlan):
        return plan.op != "except" and _is_monotone(plan.left) and _is_monotone(plan.right)
    return plan.group is None


def _is_fixpoint(plan: Plan) -> bool:
    """Whether a plan is a select without aggregates or a UNION of such: more input rows then only add result rows."""
    if isinstance(plan, SetPlan):
        return plan.op == "union" and not plan.all and _is_fixpoint(plan.left) and _is_fixpoint(plan.right)
    return plan.group is None


def _list_undelayed_reads(queries: Mapping[str, BoundQuery], name: str) -> list[str]:
    """Return the queries whose results of the same timestamp a query needs, except a recursive query itself."""
    return [
        read
        for read in queries[name].reads()
        if read in queries and queries[read].delay is None and not (read == name and queries[name].recursive)
    ]


def _find_cycle(queries: Mapping[str, BoundQuery]) -> list[str] | None:
    """Return a cycle without a delay, each query before a reader of it, None if there is no such cycle."""
    reads = {name: _list_undelayed_reads(queries, name) for name in queries}
    for part in find_components(reads):
        start = next(name for name in queries if name in part)
        path, seen = [start], {start: 0}
        while len(part) > 1 or start in reads[start]:
            name = next(read for read in reads[path[-1]] if read in part)
            if name in seen:
                return path[seen[name] :][::-1]
            seen[name] = len(path)
            path.append(name)
    return None


def find_components(edges: Mapping[str, Sequence[str]]) -> list[set[str]]:
    """Return the strongly connected components of a graph."""
    reached = {name: _find_reachable(name, edges) for name in edges}
    components: list[set[str]] = []
    for name in edges:
        if not any(name in part for part in components):
            components.append({name, *(other for other in reached[name] if name in reached[other])})
    return components


def _find_reachable(name: str, edges: Mapping[str, Sequence[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(edges[name])
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached.add(node)
            waiting += edges[node]
    return reached
