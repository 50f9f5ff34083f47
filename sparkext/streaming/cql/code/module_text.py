"""Generates the module that runs a graph of queries: one function per processing step, and the loop over instants.

    stream ──▶ window ──▶ in ──▶ row ──┬──────────────▶ (set operation, DISTINCT) ──▶ readers of a relation
                          (joins)      └┄┄▶ flush ─▶ post ─▲                      └┄┄▶ streams
                                            (groups)

A row is passed on as an address (`a`, see `kernels.arena.rows`) and a weight (`w`): the number of copies that are
inserted or, if negative, deleted. A row passes all steps immediately, with two exceptions (┄): groups, and relations
that become a stream, wait until all other changes of the instant have arrived. Insertions and deletions at one instant
have then cancelled out. An instant is a timestamp and a number of ε after it. The next instant is the first that has an
input row, or at which a window, a delay or a period has something to do. The queries of a section run in the order of
the graph, and sections run one after the other (`loops`).

A join stores the rows of each input. It finds the matches of a new row through indexes, input after input: first the
inputs with window [Now], then the inputs that an equality connects. Partially joined rows are not stored.

The generated text consists of operators of a closed list, and of numbers and names that this module has written. All
values from the user are passed as constants. Equal texts are compiled once. Code that all queries share is in
`kernels.arena`: compiling a line costs some 20 ms, and LLVM optimises a function again in each of its callers.
Code with a single caller is therefore inlined as lines, without a function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from sparkext.kernels import arena
from sparkext.kernels.arena.exact_sums import SUM_WORDS
from sparkext.kernels.arena.integer_sums import INTEGER_SUM_WORDS
from sparkext.kernels.arena.queues import QUEUE_WORDS
from sparkext.kernels.arena.relations import (
    DISTINCT,
    EXCEPT,
    EXCEPT_ALL,
    INTERSECT,
    INTERSECT_ALL,
    UNION,
)
from sparkext.kernels.arena.words import DOUBLE_ORDER
from sparkext.kernels.indexes.nested_loop import Constant
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.expressions.number_types import INTEGERS
from sparkext.streaming.cql.code.expressions import TextConstant, WordExpressions
from sparkext.streaming.cql.code.joins import JoinPlan, find_read_sources
from sparkext.streaming.cql.code.layout import ROW, Int64Literal, Layout, order_of
from sparkext.streaming.cql.code.loops import RUN, SECTION, SectionLines, write_run_loop
from sparkext.streaming.cql.code.shared_lines import SHARED, indent_lines, write_drain_loop
from sparkext.streaming.cql.code.windows import WindowLines
from sparkext.streaming.cql.language.graph import Graph
from sparkext.streaming.cql.language.queries import (
    Aggregate,
    BoundQuery,
    Input,
    Plan,
    RelationColumn,
    SelectPlan,
    SetPlan,
)
from sparkext.streaming.cql.language.sections import sections_of

_IMPORTS = """import numpy as np

from sparkext.kernels.arena.chains import chain, empty_chains, unchain
from sparkext.kernels.arena.exact_sums import add_exactly, exact_sum
from sparkext.kernels.arena.integer_sums import add_integer, has_integer_sum, integer_average, integer_sum
from sparkext.kernels.arena.ordered_sets import count_value, greatest, least
from sparkext.kernels.arena.queues import append, move_all, pop, release_all
from sparkext.kernels.arena.relations import add_to_bag, count_side, drop_from_bag, emit_all, emit_changes, keep_row
from sparkext.kernels.arena.relations import empty_bag, note_change, part_of, record_of, take_rows
from sparkext.kernels.arena.room import release
from sparkext.kernels.arena.rows import copy_all, copy_row, queued, release_queued
from sparkext.kernels.arena.tables import open_table, unlink
from sparkext.kernels.arena.words import compare_texts, double_word, hashed, normal
from sparkext.kernels.runtime.intrinsics import double_of, multiply_overflows
from sparkext.kernels.runtime.jit import inlined, kernel
"""
_SET_OPERATIONS = {
    ("union", False): UNION,
    ("except", False): EXCEPT,
    ("except", True): EXCEPT_ALL,
    ("intersect", False): INTERSECT,
    ("intersect", True): INTERSECT_ALL,
}


@dataclass(frozen=True)
class GeneratedModule:
    """A generated module, the constants that its functions take, and the positions of inputs, outputs and instants.

    `headers`: initial values of the header words. `places[stream]`: the index of a stream, and of its first column.
    `outputs`: position of the queue of each output. `instants`: position of the current instant of each section.
    """

    text: str
    constants: tuple[Constant | TextConstant, ...]
    headers: tuple[int, ...]
    places: Mapping[str, tuple[int, int]]
    outputs: Mapping[str, int]
    instants: tuple[int, ...]


def generate_module(
    graph: Graph, outputs: Sequence[str], *, serial: bool = False, together: bool = False
) -> GeneratedModule:
    """Generate the module for some outputs and the queries that they depend on.

    `serial`: rows of one timestamp are processed one at a time, each after all consequences of the row before it,
    instead of at one instant. `together`: all queries form one section, as `serial` implies.
    """
    needed = graph.needed(outputs)
    sections = [needed.order] if serial or together else sections_of(needed)
    return _Writer(needed, outputs, sections).code(serial)


@cache
def _fingerprint_kernels() -> str:
    """Return a fingerprint of the arena kernels: the machine code of a module contains the machine code of kernels."""
    digest = hashlib.sha256()
    for path in sorted(Path(arena.__path__[0]).glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


_Sink = Callable[[str, str], list[str]]
"""Returns the lines that pass a row on, given the names of its weight and its address."""


class _Writer:
    def __init__(self, graph: Graph, outputs: Sequence[str], sections: Sequence[Sequence[str]]) -> None:
        self._graph = graph
        self._lines: list[str] = [f"# {_fingerprint_kernels()}", _IMPORTS.rstrip()]
        self._layout = Layout()
        self._constants: list[Constant | TextConstant] = []
        self._numbers = {name: f"q{position}" for position, name in enumerate(graph.order)}
        self._ids = count()
        self._readers = {name: [*self._readers_of(name)] for name in graph.queries}
        self._positions: dict[str, tuple[int, int]] = {}
        first = 0
        for position, (name, stream) in enumerate(graph.streams.items()):
            self._positions[name] = position, first
            first += len(stream.columns)
        self._outputs = {name: self._layout.words(QUEUE_WORDS) for name in outputs}
        self._sections = [self._create_section(names) for names in sections]
        self._section_of = {
            name: section for names, section in zip(sections, self._sections, strict=True) for name in names
        }
        for names, section in zip(sections, self._sections, strict=True):
            self._connect_section(names, section)

    def _create_section(self, names: Sequence[str]) -> SectionLines:
        """Return a section of queries, with queues for the streams that they emit."""
        input_streams = {
            read for name in names for read in self._graph.queries[name].reads() if read in self._graph.streams
        }
        streams = (
            None
            if input_streams == {*self._graph.streams}
            else sorted(self._positions[name][0] for name in input_streams)
        )
        section = SectionLines(self._layout.instant(), streams)
        for name in names:
            if self._graph.is_stream(name):
                section.emits(self._layout, name, self._width(name))
            if self._graph.is_delayed(name):
                section.delays[name] = self._layout.words(QUEUE_WORDS)
        return section

    def _connect_section(self, names: Sequence[str], section: SectionLines) -> None:
        """Connect a section: inboxes for streams of other sections, and destinations for its own streams."""
        for name in names:
            for read in self._graph.queries[name].reads():
                if read in self._section_of and self._section_of[read] is not section and read not in section.inboxes:
                    section.reads(self._layout, read, self._width(read))
                    self._section_of[read].goes_to.setdefault(read, []).append(section.inboxes[read])
            if name in self._outputs:
                section.outputs.add(name)
                section.goes_to.setdefault(name, []).append(self._outputs[name])

    def _width(self, name: str) -> int:
        return len(self._graph.queries[name].columns)

    def _readers_of(self, name: str) -> Iterator[str]:
        """Yield the names of the functions that process the rows of a relation."""
        for reader in self._graph.order:
            for number, select in enumerate(self._graph.queries[reader].selects()):
                for position, read in enumerate(select.inputs):
                    if read.name == name and read.window is None:
                        yield f"{self._numbers[reader]}_s{number}_in{position}"

    def code(self, serial: bool) -> GeneratedModule:
        for name in self._graph.order:
            query = self._graph.queries[name]
            (self._write_recursive if query.recursive else self._write_query)(query)
        self._function("begin", "m", "kernel")
        self._put(1, *(f"open_table(m, {table})" for table in self._layout.tables), "return")
        for index, section in enumerate(self._sections):
            self._function(f"section{index}", SECTION, "kernel")
            self._put(1, *section.lines(serial))
        self._function("run", RUN, "kernel")
        self._put(1, *write_run_loop(len(self._sections)))
        text = "\n".join(self._lines) + "\n"
        instants = tuple(section.instant for section in self._sections)
        return GeneratedModule(
            text, tuple(self._constants), self._layout.headers(), self._positions, self._outputs, instants
        )

    # Text

    def _function(self, name: str, parameters: str, decorator: str = "inlined") -> None:
        self._lines += ["", "", f"@{decorator}", f"def {name}({parameters}):"]

    def _put(self, depth: int, *lines: str) -> None:
        self._lines += indent_lines(depth, lines)

    # Queries

    def _write_query(self, query: BoundQuery) -> None:
        """Write all functions of a query, and the lines that run it at each instant."""
        number = self._numbers[query.name]
        expires: list[str] = []
        adds: list[str] = []
        flushes: list[str] = []
        selects = count()

        def write_plan(plan: Plan, sink: _Sink) -> None:
            if isinstance(plan, SetPlan):
                sides = [sink, sink]
                if not (plan.op == "union" and plan.all):
                    sides = self._create_set_sinks(
                        _SET_OPERATIONS[plan.op, plan.all], (plan.left.columns, plan.right.columns), sink
                    )
                write_plan(plan.left, sides[0])
                write_plan(plan.right, sides[1])
                return
            name = f"{number}_s{next(selects)}"
            if plan.distinct:
                (sink,) = self._create_set_sinks(DISTINCT, (plan.columns,), sink)
            self._write_select(name, plan, sink)
            if plan.group is not None:
                flushes.append(f"{name}_flush({SHARED})")
            for position, read in enumerate(plan.inputs):
                self._add_window(self._section_of[query.name], read, f"{name}_in{position}", expires, adds)

        sink, emit = self._create_end(query)
        write_plan(query.plan, sink)
        self._section_of[query.name].work += [f"# {number}", *expires, *adds, *flushes, *emit]

    def _add_window(self, section: SectionLines, read: Input, into: str, expires: list[str], adds: list[str]) -> None:
        """Add the lines by which rows leave and enter the window of an input, if it has a window."""
        if read.window is not None:
            window = WindowLines(self._layout, read, into)
            section.firing += window.firing
            expires += window.expire
            adds += self._write_additions(section, read, window)

    def _write_additions(self, section: SectionLines, read: Input, window: WindowLines) -> list[str]:
        """Return the lines that add the rows of a stream at this instant to a window."""
        if read.name not in self._graph.streams:
            lines = window.add(f"b + {ROW}")
            return [f"b = m[{section.buffers[read.name]}]", "while b != 0:", *indent_lines(1, lines), "    b = m[b]"]
        stream, first = self._positions[read.name]
        row = self._layout.words(1 + len(read.columns))
        copies = [f"m[{row + 1 + k}] = x[{first + k}][i]" for k in range(len(read.columns))]
        lines = [f"m[{row}] = n[{stream}][i]", *copies, *window.add(f"{row}")]
        return ["for i in range(at, stop):", f"    if streams[i] == {stream}:", *indent_lines(2, lines)]

    def _create_end(self, query: BoundQuery) -> tuple[_Sink, list[str]]:
        """Return the sink of a query's result rows, and the lines that emit its stream, if any, at an instant."""
        if query.operator is None:
            readers = self._readers[query.name]
            return lambda weight, row: [f"{reader}({SHARED}, {weight}, {row})" for reader in readers], []
        width, table, orders = (
            Int64Literal(len(query.columns)),
            self._layout.table(),
            self._allocate_orders(query.columns),
        )
        section = self._section_of[query.name]
        queue = (section.buffers if query.delay is None else section.delays)[query.name]
        arguments = f"{width}, {orders}, s, d, {queue}, t + {query.delay or 0}, e + {int(query.delay == 0)}"
        if query.operator != "rstream":
            changed, sign = self._layout.words(1), Int64Literal(1 if query.operator == "istream" else -1)
            emit = f"emit_changes(m, {table}, {changed}, {sign}, {arguments})"
            return (lambda weight, row: [f"note_change(m, {table}, {changed}, {weight}, {row}, {width})"]), [emit]
        index = self._layout.table()
        emit = f"emit_all(m, {table}, {index}, {arguments})"
        emits = [emit]
        if query.period is not None:
            due = self._layout.words(1)
            section.firing += [
                f"if m[{table + 2}] > 0 and (m[{due}] < t or (m[{due}] == t and e > 0)):",
                f"    t, e = m[{due}], np.int64(0)",
            ]
            following = f"m[{due}] = (t // {query.period} + 1) * {query.period}"
            emits = [f"if e == 0 and t % {query.period} == 0:", f"    {emit}", following]
        return (lambda weight, row: [f"keep_row(m, {table}, {index}, {weight}, {row}, {width})"]), emits

    def _allocate_orders(self, columns: Sequence[RelationColumn]) -> Int64Literal:
        """Return the position of the comparison orders of a row's values."""
        return self._layout.words(len(columns), [order_of(column.type) for column in columns])

    def _create_set_sinks(self, op: int, sides: Sequence[tuple[RelationColumn, ...]], sink: _Sink) -> list[_Sink]:
        """Return the sinks for the rows of the sides of a set operation."""
        table = self._layout.table()
        return [self._create_side_sink(op, side, table, columns, sink) for side, columns in enumerate(sides)]

    def _create_side_sink(
        self, op: int, side: int, table: Int64Literal, columns: Sequence[RelationColumn], sink: _Sink
    ) -> _Sink:
        """Return a sink that counts a row on one side, and passes on the change of its multiplicity in the result."""
        row, width = self._layout.words(1 + len(columns)), Int64Literal(len(columns))
        doubles = [k for k, column in enumerate(columns) if order_of(column.type) == DOUBLE_ORDER]

        def lines(weight: str, source_row: str) -> list[str]:
            times = f"w{next(self._ids)}"
            return [
                f"copy_row(m, {source_row}, {row}, {width})",
                *(f"m[{row + 1 + k}] = normal(m[{row + 1 + k}])" for k in doubles),
                f"{times} = count_side(m, {table}, {Int64Literal(op)}, {Int64Literal(side)}, {weight}, {row}, {width})",
                f"if {times} != 0:",
                *indent_lines(1, sink(times, f"{row}")),
            ]

        return lines

    # Selects

    def _write_select(self, name: str, plan: SelectPlan, sink: _Sink) -> None:
        """Write the functions that process a row of each input of a select."""
        rows = _list_addresses(plan)
        if plan.group is not None:
            self._write_groups(name, plan, rows, sink)
        if len(plan.inputs) == 1:
            self._function(f"{name}_in0", f"{SHARED}, w, a0")
            writer = _create_input_writer(plan, self._constants)
            depth = self._write_conditions(1, writer, plan.where)
            if plan.group is None:
                self._write_result(depth, writer, plan.outputs, sink)
            else:
                self._put(depth, f"{name}_row({SHARED}, w, a0)")
            self._put(1, "return")
            return
        if plan.group is None:
            self._function(f"{name}_row", f"{SHARED}, w, {rows}")
            self._write_result(1, _create_input_writer(plan, self._constants), plan.outputs, sink)
            self._put(1, "return")
        join = JoinPlan(self._layout, plan)
        for source in range(len(plan.inputs)):
            self._write_input(name, plan, source, join)

    def _write_result(self, depth: int, writer: WordExpressions, outputs: Sequence[Expression], sink: _Sink) -> None:
        """Write the lines that compute an output row and pass it on."""
        row = self._layout.words(1 + len(outputs))
        words = [writer.word(output) for output in outputs]
        self._put(depth, *writer.taken())
        self._write_row(depth, row, words)
        self._put(depth, *sink("w", f"{row}"))

    def _write_row(self, depth: int, row: Int64Literal, words: Sequence[tuple[str, str | None]]) -> None:
        """Write the lines that store the words of a row."""
        bits = [f"(({null}) << {k})" for k, (_, null) in enumerate(words) if null is not None]
        self._put(depth, f"m[{row}] = {' | '.join(bits) or 0}")
        self._put(depth, *(f"m[{row + 1 + k}] = {word}" for k, (word, _) in enumerate(words)))

    def _write_conditions(self, depth: int, writer: WordExpressions, tests: Sequence[Expression]) -> int:
        """Write conditions as nested ifs; return the indentation depth of their body."""
        for test in tests:
            step = writer.step(test)
            self._put(depth, *writer.taken())
            self._put(depth, f"if {step.value}{'' if step.known is None else f' and {step.known}'}:")
            depth += 1
        return depth

    def _write_input(self, name: str, plan: SelectPlan, start: int, join: JoinPlan) -> None:
        """Write the function that stores or removes a row of an input, and passes on the resulting joined rows."""
        self._function(f"{name}_in{start}", f"{SHARED}, w, a{start}")
        writer = _create_input_writer(plan, self._constants)
        depth = self._write_storage(plan, start, join, writer)
        self._write_matches(depth, name, plan, start, join, writer)
        self._put(1, "return")

    def _write_storage(self, plan: SelectPlan, start: int, join: JoinPlan, writer: WordExpressions) -> int:
        """Write the lines that update the bag and the indexes of an input with the rows that pass the input's filters.

        Return the indentation depth of further code for these rows.
        """
        depth = self._write_conditions(1, writer, [test for test in plan.where if find_read_sources(test) <= {start}])
        indexes, table, width = join.own(start), join.tables[start], Int64Literal(len(plan.inputs[start].columns))
        hashes = [_spell_hash(writer, index.keys) for index in indexes]
        self._put(depth, *writer.taken())
        at = join.row_at(start)
        self._put(depth, f"r = add_to_bag(m, {table}, w, a{start}, {width}, {at})", "if r > 0:")
        for index, hashed in zip(indexes, hashes, strict=True):
            has_key = Int64Literal(bool(index.keys))
            self._put(depth + 1, f"chain(m, {index.header}, r, {index.field}, {hashed}, {has_key})")
        self._put(depth + 1, *([] if indexes else ["pass"]))
        self._put(depth, "elif r < 0:")
        self._put(depth + 1, *(f"unchain(m, {index.header}, -r, {index.field})" for index in indexes))
        self._put(depth + 1, f"drop_from_bag(m, {table}, -r, {width}, {at})")
        return depth

    def _write_matches(
        self, depth: int, name: str, plan: SelectPlan, start: int, join: JoinPlan, writer: WordExpressions
    ) -> None:
        """Write the lines that find the joined rows that contain a row of an input."""
        weight, next_records = "w", []
        for step in join.ways[start]:
            index = join.indexes[step.source][step.keys]
            record = f"r{step.source}"
            hashed = _spell_hash(writer, step.probes)
            self._put(depth, *writer.taken())
            self._put(depth, f"h{step.source} = {hashed}")
            bucket = f"m[{index.header}] + (h{step.source} & m[{index.header + 1}])"
            self._put(depth, f"{record} = m[{bucket}]", f"while {record} != 0:")
            depth += 1
            next_records.append((depth, f"{record} = m[{record} + {index.field}]"))
            self._put(depth, f"if m[{record} + {index.field + 2}] == h{step.source}:")
            depth += 1
            self._put(depth, f"w{step.source} = {weight} * m[{record} + 2]")
            self._put(depth, f"a{step.source} = {record} + {join.row_at(step.source)}")
            weight = f"w{step.source}"
            depth = self._write_conditions(depth, writer, step.tests)
        self._put(depth, f"{name}_row({SHARED}, {weight}, {_list_addresses(plan)})")
        for at_depth, line in reversed(next_records):
            self._put(at_depth, line)

    # Fixpoints

    def _write_recursive(self, query: BoundQuery) -> None:
        """Write a query that reads itself at the same instant: its result is the least fixpoint of its relation.

        Each input stores and queues its new rows. After all inputs have stored theirs, the queued rows are joined, and
        then, round by round, the rows derived from them. After a deletion all rows are derived again, because a row may
        support its own derivation.
        """
        number, width = self._numbers[query.name], Int64Literal(len(query.columns))
        table, shrunk = self._layout.table(), self._layout.words(1)
        new_queue, round_queue, removed_queue = (self._layout.words(QUEUE_WORDS) for _ in range(3))
        readers = [reader for reader in self._readers[query.name] if not reader.startswith(f"{number}_")]

        def follow(weight: str, row: str) -> list[str]:
            queue_line = f"append(m, {new_queue}, queued(m, {Int64Literal(0)}, {Int64Literal(0)}, {row}, {width}))"
            return [queue_line, *(f"{reader}({SHARED}, {weight}, {row})" for reader in readers)]

        sink = self._create_side_sink(DISTINCT, 0, table, query.columns, follow)
        expires: list[str] = []
        adds: list[str] = []
        clears: list[str] = []
        derives: list[str] = []
        follows: list[str] = []
        rounds: list[str] = []
        for position, select in enumerate(query.selects()):
            name = f"{number}_s{position}"
            own_sources = [source for source, read in enumerate(select.inputs) if read.name == query.name]
            join = JoinPlan(self._layout, select)
            if not own_sources:
                join.index(0, ())
            self._function(f"{name}_row", f"{SHARED}, w, {_list_addresses(select)}")
            self._write_result(1, _create_input_writer(select, self._constants), select.outputs, sink)
            self._put(1, "return")
            for source, read in enumerate(select.inputs):
                self._function(f"{name}_match{source}", f"{SHARED}, w, a{source}")
                self._write_matches(1, name, select, source, join, _create_input_writer(select, self._constants))
                self._put(1, "return")
                self._function(f"{name}_in{source}", f"{SHARED}, w, a{source}")
                depth = self._write_storage(select, source, join, _create_input_writer(select, self._constants))
                columns, at = Int64Literal(len(read.columns)), join.row_at(source)
                if source in own_sources:
                    self._put(depth, f"{name}_match{source}({SHARED}, w, a{source})")
                    rounds.append(f"{name}_in{source}({SHARED}, {Int64Literal(1)}, r + {ROW})")
                    clears += [f"empty_chains(m, {index.header})" for index in join.own(source)]
                    clears.append(f"empty_bag(m, {join.tables[source]}, {columns}, {at})")
                else:
                    inbox = self._layout.words(QUEUE_WORDS)
                    waiting_line = (
                        f"append(m, {inbox}, queued(m, {Int64Literal(0)}, {Int64Literal(0)}, a{source}, {columns}))"
                    )
                    self._put(depth, "if w < 0:", f"    m[{shrunk}] = 1", "else:", f"    {waiting_line}")
                    clears.append(f"release_all(m, {inbox}, {Int64Literal(ROW + 1 + columns)})")
                    match_call = f"{name}_match{source}({SHARED}, {Int64Literal(1)}, r + {ROW})"
                    follows += write_drain_loop(inbox, [match_call, f"release_queued(m, r, {columns})"])
                    self._add_window(self._section_of[query.name], read, f"{name}_in{source}", expires, adds)
                self._put(1, "return")
            if not own_sources:
                index = join.index(0, ())
                match_call = f"{name}_match0({SHARED}, {Int64Literal(1)}, b + {join.row_at(0)})"
                lines = [
                    f"b = m[m[{index.header}]]",
                    "while b != 0:",
                    f"    {match_call}",
                    f"    b = m[b + {index.field}]",
                ]
                derives += lines
        removal_calls = [f"{reader}({SHARED}, {Int64Literal(-1)}, r + {ROW})" for reader in readers]
        removal_lines = [
            f"take_rows(m, {table}, {width}, {removed_queue})",
            *write_drain_loop(removed_queue, [*removal_calls, f"release_queued(m, r, {width})"]),
        ]
        derivation_lines = [f"m[{shrunk}] = 0", *removal_lines, *clears, *derives]
        round_lines = write_drain_loop(round_queue, [*rounds, f"release_queued(m, r, {width})"])
        too_many = ["if rounds > limit:", "    return at, t, e, True"]
        following = ["rounds += 1", *too_many, f"move_all(m, {new_queue}, {round_queue})", *round_lines]
        work = self._section_of[query.name].work
        work += [f"# {number}", *expires, *adds]
        work += [
            f"if m[{shrunk}] != 0:",
            *indent_lines(1, derivation_lines),
            "else:",
            *indent_lines(1, follows or ["pass"]),
        ]
        work += ["rounds = 0", f"while m[{new_queue}] != 0:", *indent_lines(1, following)]

    # Groups

    def _write_groups(self, name: str, plan: SelectPlan, rows: str, sink: _Sink) -> None:
        """Write the functions for groups. Record: [next, hash, next changed, rows, is emitted, result, key, states].

        The result is the row that the group emitted last: the key and the aggregates.
        """
        assert plan.group is not None, "there are groups"
        width, aggregate_count = Int64Literal(len(plan.group)), len(plan.aggregates)
        result_row, row = self._layout.words(1 + width + aggregate_count), self._layout.words(1 + width)
        result, key = 5, Int64Literal(6 + width + aggregate_count)
        states, words = [], key + 1 + width
        for aggregate in plan.aggregates:
            states.append(words)
            words += _count_state_words(aggregate)
        words = Int64Literal(words)
        table, changed = self._layout.table(), self._layout.words(1)
        aggregates = [*zip(range(aggregate_count), plan.aggregates, states, strict=True)]
        # Adds a row of the join to its group: evaluates the keys and the arguments of the aggregates.
        self._function(f"{name}_row", f"{SHARED}, w, {rows}")
        writer = _create_input_writer(plan, self._constants)
        key_words = [writer.key(expression) for expression in plan.group]
        argument_words = [
            None if aggregate.argument is None else writer.word(aggregate.argument) for aggregate in plan.aggregates
        ]
        self._put(1, *writer.taken())
        self._write_row(1, row, key_words)
        self._put(1, f"r = record_of(m, {table}, {row}, {width}, {key}, {words})")
        self._put(1, "m[r + 3] += w", "if m[r + 2] == 0:")
        self._put(2, f"m[r + 2] = m[{changed}] if m[{changed}] != 0 else 1", f"m[{changed}] = r")
        for (_, aggregate, at), value in zip(aggregates, argument_words, strict=True):
            if value is not None:
                self._write_accumulation(aggregate, at, *value)
        self._put(1, "return")
        # Emits the groups that have changed at an instant.
        self._function(f"{name}_flush", SHARED)
        self._put(1, f"r = m[{changed}]", f"m[{changed}] = 0", "while r > 1:")
        self._put(2, "following = m[r + 2]", "m[r + 2] = 0", "is_there = m[r + 3] > 0")
        self._put(2, f"copy_row(m, r + {key}, {result_row}, {width})")
        for j, aggregate, at in aggregates:
            self._write_aggregate(result_row, width + j, aggregate, at)
        differs = "".join(f" or m[r + {result + k}] != m[{result_row + k}]" for k in range(1 + width + aggregate_count))
        self._put(2, f"if m[r + 4] == 0 or not is_there{differs}:")
        self._put(3, "if m[r + 4] != 0:", f"    {name}_post({SHARED}, {Int64Literal(-1)}, r + {result})")
        self._put(3, "if is_there:", "    m[r + 4] = 1")
        self._put(4, f"copy_row(m, {result_row}, r + {result}, {Int64Literal(width + aggregate_count)})")
        self._put(4, f"{name}_post({SHARED}, {Int64Literal(1)}, r + {result})")
        self._put(2, "if not is_there:", f"    unlink(m, {table}, r)", f"    release(m, r, {words})", "r = following")
        self._put(1, "return")
        self._function(f"{name}_post", f"{SHARED}, w, a0")
        writer = WordExpressions(lambda source, position: True, self._constants)
        depth = self._write_conditions(1, writer, [] if plan.having is None else [plan.having])
        self._write_result(depth, writer, plan.outputs, sink)
        self._put(1, "return")

    def _write_accumulation(self, aggregate: Aggregate, at: int, word: str, null: str | None) -> None:
        """Write the lines that add a value to the state of an aggregate, or remove it."""
        assert aggregate.argument is not None and aggregate.argument.type is not None, "rows are counted anyway"
        kind, weight, depth = aggregate.argument.type, "w", 1
        if null is not None:
            self._put(1, f"if {null} == 0:")
            depth = 2
        order = order_of(kind)
        if aggregate.function in ("min", "max"):
            self._put(depth, f"count_value(m, r + {at}, {word}, w, {order}, s, d)")
            return
        if aggregate.distinct:
            word = f"normal({word})" if order == DOUBLE_ORDER else word
            self._put(depth, f"v = count_value(m, r + {at}, {word}, w, {order}, s, d)")
            weight, at = "v", at + 1
        if aggregate.function == "count":
            self._put(depth, f"m[r + {at}] += {weight}")
        elif kind.name in INTEGERS:
            self._put(depth, f"add_integer(m, r + {at}, {word}, {weight})")
        else:
            self._put(depth, f"add_exactly(m, r + {at}, double_of({word}), {weight})")
            self._put(depth, f"m[r + {at + SUM_WORDS}] += {weight}")

    def _write_aggregate(self, row: Int64Literal, position: int, aggregate: Aggregate, at: int) -> None:
        """Write the lines that store the result of an aggregate as value `place` of a row."""
        word = f"m[{row + 1 + position}]"
        kind = None if aggregate.argument is None else aggregate.argument.type
        if kind is None:
            self._put(2, f"{word} = m[r + 3]")
            return
        at += int(aggregate.distinct)
        if aggregate.function == "count":
            self._put(2, f"{word} = m[r + {at}]")
            return
        if aggregate.function in ("min", "max"):
            function = "least" if aggregate.function == "min" else "greatest"
            known, value = f"m[r + {at}] != 0", f"{function}(m, r + {at})"
        elif kind.name not in INTEGERS:
            divisor = f" / m[r + {at + SUM_WORDS}]" if aggregate.function == "avg" else ""
            known, value = f"m[r + {at + SUM_WORDS}] > 0", f"double_word(exact_sum(m, r + {at}){divisor})"
        elif aggregate.function == "avg":
            known, value = f"m[r + {at + 2}] > 0", f"double_word(integer_average(m, r + {at}))"
        else:
            known, value = f"has_integer_sum(m, r + {at})", f"integer_sum(m, r + {at})"
        self._put(2, f"if {known}:", f"    {word} = {value}")
        self._put(2, "else:", f"    {word} = 0", f"    m[{row}] |= 1 << {position}")


def _list_addresses(plan: SelectPlan) -> str:
    return ", ".join(f"a{source}" for source in range(len(plan.inputs)))


def _create_input_writer(plan: SelectPlan, constants: list[Constant | TextConstant]) -> WordExpressions:
    return WordExpressions(lambda source, position: plan.inputs[source].columns[position].nullable, constants)


def _spell_hash(writer: WordExpressions, keys: Sequence[Expression]) -> str:
    hashed = "np.int64(0)"
    for key in keys:
        word, _ = writer.key(key)
        hashed = f"hashed({hashed}, {word})"
    return hashed


def _count_state_words(aggregate: Aggregate) -> int:
    if aggregate.argument is None:
        return 0
    if aggregate.function in ("min", "max"):
        return 1
    kind = aggregate.argument.type
    assert kind is not None, "it has been typed"
    if aggregate.function == "count":
        words = 1
    else:
        words = INTEGER_SUM_WORDS if kind.name in INTEGERS else SUM_WORDS + 1
    return words + int(aggregate.distinct)
