"""Runs a graph of queries over rows in the order of time, and keeps what has to be known of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkext.cql.code import ROWS_AT_ONCE, Code
from sparkext.cql.expressions import constant_word
from sparkext.cql.graph import Graph
from sparkext.cql.layout import AFTER, EPSILONS, GIVEN, NOW, ROW, TIME
from sparkext.cql.modules import module_of
from sparkext.cql.words import column_of, nulls_of, words_of
from sparkext.kernels.arena.queues import drain
from sparkext.kernels.arena.room import ArenaFullError
from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.text_dictionary import TextDictionary
from sparkext.rows.types import arrow_key_type

FOR_EVER = (1 << 63) - 2
"""The last timestamp that there is, in µs."""

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

    `rows[stream]` has as many rows as all have, of which those of other streams are not looked at.
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

    `serial`: rows of one timestamp come one after the other, each when what the one before it has set off has come to
    rest, instead of at one instant. `state`: see `state`.
    """

    def __init__(
        self,
        graph: Graph,
        code: Code,
        *,
        words: int,
        limit: int,
        serial: bool = False,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._graph, self._code, self._limit, self._serial = graph, code, limit, serial
        self._module = module_of(code.text)
        self._texts = TextDictionary()
        if state is None:
            self._arena = np.empty(max(words, _LEAST_WORDS + len(code.headers)), dtype=np.int64)
            self._arena[: len(code.headers)] = code.headers
            self._module.begin(self._arena)
            self._arena[NOW] = -(1 << 63)
            self._texts.codes(pa.array([""]))
        else:
            kept = state["arena"]
            self._arena = np.empty(max(words, _LEAST_WORDS + kept.size), dtype=np.int64)
            self._arena[: kept.size] = kept
            self._texts.codes(state["texts"])
        self._last = self._instant
        self._constants = tuple(constant_word(one, self._text_code) for one in code.constants)

    def _text_code(self, text: str) -> int:
        return int(self._texts.codes(pa.array([text]))[0])

    @property
    def _instant(self) -> tuple[int, int]:
        return int(self._arena[NOW]), int(self._arena[AFTER])

    @property
    def has_run(self) -> bool:
        """Whether anything has happened since it was made."""
        return self._instant != self._last

    def state(self) -> dict[str, Any]:
        """Return what another engine of the same graph goes on with."""
        return {
            "arena": self._arena[: self._arena[0]].copy(),
            "texts": self._texts.span(0, self._texts.count, pa.large_string()),
        }

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
        for name in self._code.places:
            kinds = [column.type for column in self._graph.streams[name].columns]
            columns = given.rows[name]
            x += [words_of(column, kind, self._texts) for column, kind in zip(columns, kinds, strict=True)]
            n.append(nulls_of([*columns], given.times.size))
        starts, data = self._texts.spans
        shared = (self._arena, self._constants, starts, data, tuple(x), tuple(n), given.times, given.streams)
        at, goes_on = 0, True
        while goes_on:
            try:
                with np.errstate(all="ignore"):  # where there is no JIT
                    at, exceeded = self._module.run(*shared, self._serial, at, until, self._limit)
            except ArenaFullError:
                raise StateFullError(self._arena.size) from None
            goes_on = not exceeded and self._arena[GIVEN] >= ROWS_AT_ONCE
            for query, queue in self._code.outputs.items():
                yield from self._drained(query, queue)
            self._arena[GIVEN] = 0
            if exceeded:
                raise StepsExceededError(int(self._arena[NOW]), self._limit)

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
