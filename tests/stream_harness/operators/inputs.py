"""A stream as the input of an operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.stream_harness.columns import Column
from tests.stream_harness.nodes import History, Streams
from tests.stream_harness.sources import Row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Input:
    """Stream `number` of the case, with these columns."""

    number: int
    columns: tuple[Column, ...]
    time: str | None
    unique: str

    def frame(self, streams: Streams) -> DataFrame:
        return streams.stream(self.number)

    def expected(self, history: History, timed: bool) -> list[Row]:
        return history.on_time(self.number) if timed else history.rows(self.number)
