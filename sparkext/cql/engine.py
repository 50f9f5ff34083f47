"""Runs a graph of queries over rows in the order of time, and keeps what has to be known of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.cql.code import Code
from sparkext.cql.expressions import constant_word
from sparkext.cql.graph import Graph
from sparkext.cql.layout import EPSILONS, GIVEN, NOW, ROW, STEPS, TIME
from sparkext.cql.loops import DONE, MORE, places
from sparkext.cql.modules import module_of
from sparkext.cql.stored_state import read_state, write_state
from sparkext.cql.words import column_of, nulls_of, words_of
from sparkext.kernels.arena.queues import drain
from sparkext.kernels.arena.room import ArenaFullError
from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.text_dictionary import TextDictionary
from sparkext.rows.types import arrow_key_type

FOR_EVER = (1 << 63) - 2
"""The last timestamp that there is, in µs."""

ROWS_IN_TURN = 100
"""Given rows that a section goes on for before the next has its turn: with 10 to 1000 it is about as fast, and with
more or fewer slower."""

_LEAST_WORDS = 1 << 12


class StepsExceededError(ArithmeticError):
    """A timestamp has more instants than allowed."""

    def __init__(self, time: int, limit: int) -> None:
        self.time, self.limit = time, limit
        super().__init__(f"{limit} instants of one timestamp")


class StateFullError(MemoryError):
    """What has to be known does not fit where it has to."""

    def __init__(self, words: int) -> None:
        self.bytes = 8 * words
        super().__init__(f"{8 * words} bytes are not enough")


@dataclass(frozen=True)
class Given:
    """Rows in the order of time: µs, the number of each one's stream, and a table of each stream's columns.

    `rows[stream]` has as many rows as all have, of which those of other streams are not looked at: streams may share
    the arrays of a type.
    """

    times: Int64Array
    streams: np.ndarray
    rows: Mapping[str, Sequence[pa.Array]]


@dataclass(frozen=True)
class Emitted:
    """Rows of one output: µs, how many ε behind, and columns in the types of the query."""

    query: str
    times: Int64Array
    epsilons: Int64Array
    columns: list[pa.Array]


class Engine:
    """`code`: that of the graph. `words`: of how many the state may have. `limit`: instants of one time without a row.

    `batch`: how many rows a section of the code goes on for before the next has its turn. `state`: see `state`.
    """

    def __init__(
        self,
        graph: Graph,
        code: Code,
        *,
        words: int,
        limit: int,
        batch: int = ROWS_IN_TURN,
        state: bytes | None = None,
    ) -> None:
        self._graph, self._code, self._limit, self._batch = graph, code, limit, batch
        self._module = module_of(code.text)
        self._texts = TextDictionary()
        if state is None:
            self._arena = np.empty(max(words, _LEAST_WORDS + len(code.headers)), dtype=np.int64)
            self._arena[: len(code.headers)] = code.headers
            self._module.begin(self._arena)
            self._texts.codes(pa.array([""]))
        else:
            stored, texts = read_state(state)
            self._arena = np.empty(max(words, _LEAST_WORDS + stored.size), dtype=np.int64)
            self._arena[: stored.size] = stored
            self._texts.codes(texts)
        self._last = self._instants
        self._constants = tuple(constant_word(one, self._text_code) for one in code.constants)

    def _text_code(self, text: str) -> int:
        return int(self._texts.codes(pa.array([text]))[0])

    @property
    def _instants(self) -> list[int]:
        """Where all sections are."""
        return [int(word) for place in self._code.instants for word in self._arena[place : place + STEPS]]

    @property
    def has_run(self) -> bool:
        """Whether anything has happened since it was made."""
        return self._instants != self._last

    def state(self) -> bytes:
        """Return what another engine of the same graph goes on with."""
        return write_state(self._arena[: self._arena[0]], self._texts.span(0, self._texts.count, pa.large_string()))

    def run(self, given: Given, until: int) -> Iterator[Emitted]:
        """Yield what happens up to a timestamp, in the order of time for each output.

        Raises
        ------
        StepsExceededError
            A delay of ε goes round and round.
        StateFullError
            The state needs more words.
        """
        x, n = [], []
        shared: dict[int, Int64Array] = {}
        for name in self._code.places:
            columns = given.rows[name]
            for column, registered in zip(columns, self._graph.streams[name].columns, strict=True):
                if id(column) not in shared:
                    shared[id(column)] = words_of(column, registered.type, self._texts)
                x.append(shared[id(column)])
            n.append(nulls_of([*columns], given.times.size))
        starts, data = self._texts.spans
        taken = (self._arena, self._constants, starts, data, tuple(x), tuple(n), given.times, given.streams)
        at = places(len(self._code.instants))
        section = MORE
        while section == MORE:
            try:
                with np.errstate(all="ignore"):  # where there is no JIT
                    section = self._module.run(*taken, at, until, self._batch, self._limit)
            except ArenaFullError:
                raise StateFullError(self._arena.size) from None
            for query, queue in self._code.outputs.items():
                yield from self._drained(query, queue)
            self._arena[GIVEN] = 0
        if section != DONE:
            raise StepsExceededError(int(self._arena[self._code.instants[section] + NOW]), self._limit)

    def _drained(self, query: str, queue: int) -> Iterator[Emitted]:
        rows = int(self._arena[queue + 2])
        if not rows:
            return
        columns = self._graph.queries[query].columns
        words = ROW + 1 + len(columns)
        out = np.empty((words - 1, rows), dtype=np.int64)
        drain(self._arena, queue, words, out)
        nulls = out[ROW - 1]
        made = [
            column_of(out[ROW + k], (nulls >> k) & 1 != 0, column, arrow_key_type(column.type), self._texts)
            for k, column in enumerate(columns)
        ]
        yield Emitted(query, out[TIME - 1], out[EPSILONS - 1], made)
