"""The trading query: its rows, a hand-written loop that returns the correct orders, and the same loop in Spark.

Cash and stock are refilled as long as offers arrive. Otherwise, there would be no decisions after the first few
thousand offers; `require_busy` rejects such an input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from bench.harness import WrongAnswerError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, GroupedData, SparkSession

TRADING = """
REGISTER STREAM market (id string, price double);
REGISTER STREAM initial_resource (val double);
REGISTER STREAM stock_events (id string, num int);
REGISTER QUERY resource_stream ISTREAM(SELECT * FROM initial_resource [Now] UNION ALL
    SELECT resource.val - buy_event.price * buy_event.num AS val FROM resource, buy_event [Now])<Now>;
REGISTER QUERY resource SELECT * FROM resource_stream [Rows 1];
REGISTER QUERY stock_stream ISTREAM(SELECT * FROM stock_events [Now] UNION ALL
    SELECT stock.id, stock.num + buy_event.num AS num FROM stock, buy_event [Now] WHERE stock.id = buy_event.id)<Now>;
REGISTER QUERY stock SELECT * FROM stock_stream [Partition By id Rows 1];
REGISTER QUERY buy_event ISTREAM(SELECT market.id, 1000 AS num, market.price FROM market [Now], stock, resource
    WHERE stock.id = market.id AND stock.num = 0 AND market.price < 500 AND resource.val > market.price * 1000);
"""
OFFERS = 2_000_000
MARKET, CASH, STOCK = range(3)
"""Indexes of the streams, in the order of the query. A row of cash sets it to `_CASH`; a row of stock sets it to 0."""

LEAST_SHARE = 0.3
"""The least share of offers that has to be bought in each tenth of the input."""

_STOCKS = 1000
_LOWEST, _HIGHEST = 425.0, 525.0
_CASH = 17_000_000.0
_OFFERS_PER_CASH, _OFFERS_PER_STOCK = 100, 2
_ORDERS_SCHEMA = "id string, num int, price double, ts timestamp"
_FILES = {
    "market": (MARKET, ("id", "value"), "id string, price double, at long"),
    "initial_resource": (CASH, ("value",), "val double, at long"),
    "stock_events": (STOCK, ("id", "number"), "id string, num int, at long"),
}

Order = tuple[int, str, int, float]
"""Microseconds, stock, number, price."""


class Orders(list[Order]):
    """Orders with a short representation."""

    def __repr__(self) -> str:
        return f"{len(self):,} orders: {', '.join(map(str, self[:3]))}{', …' * (len(self) > 3)}"


@dataclass(frozen=True)
class TradingRows:
    """Rows of all three streams in time order. Times are distinct, except for the rows before the first offer.

    `ids` is empty in rows of cash; `values` has the price, the cash or the stock.
    """

    streams: np.ndarray
    times: np.ndarray
    ids: pa.Array
    values: np.ndarray

    @classmethod
    def generated(cls, offers: int) -> TradingRows:
        """Return offers for random stocks at random prices, with refills between them.

        Three of four offers are cheap enough. After every second offer, the next stock in turn is sold, so a stock is
        held for at most 2,000 offers. After every hundredth offer, cash is set to the price of about 37 orders.
        """
        draw = np.random.default_rng(1)
        stock, cash = offers // _OFFERS_PER_STOCK, offers // _OFFERS_PER_CASH
        # Positions: offers are 2 apart, refills are between them.
        places = [
            np.arange(offers) * 2.0,
            np.arange(1, stock + 1) * 2.0 * _OFFERS_PER_STOCK - 1,
            np.arange(1, cash + 1) * 2.0 * _OFFERS_PER_CASH - 0.5,
        ]
        order = np.argsort(np.concatenate(places))
        streams = np.repeat([MARKET, STOCK, CASH], [offers, stock, cash])
        numbers = np.concatenate([draw.integers(0, _STOCKS, offers), np.arange(stock) % _STOCKS, np.full(cash, -1)])
        prices = _LOWEST + draw.random(offers) * (_HIGHEST - _LOWEST)
        values = np.concatenate([prices, np.zeros(stock), np.full(cash, _CASH)])
        names = pa.array([*(f"stock {number}" for number in range(_STOCKS)), ""])
        every = np.concatenate([[-1], np.arange(_STOCKS), numbers[order]])
        return cls(
            np.concatenate([[CASH], np.full(_STOCKS, STOCK), streams[order]]).astype(np.int8),
            np.concatenate([np.zeros(1 + _STOCKS, np.int64), np.arange(1, order.size + 1)]),
            names.take(pa.array(every % (_STOCKS + 1))),
            np.concatenate([[_CASH], np.zeros(_STOCKS), values[order]]),
        )

    def __len__(self) -> int:
        return self.times.size

    def first(self, rows: int) -> TradingRows:
        """Return the rows before the first offer, and the next `rows` rows."""
        stop = min(len(self), 1 + _STOCKS + rows)
        return TradingRows(self.streams[:stop], self.times[:stop], self.ids[:stop], self.values[:stop])

    def lists(self) -> tuple[list[int], list[int], list[str], list[float]]:
        """Return streams, times, ids and values as Python lists."""
        return self.streams.tolist(), self.times.tolist(), self.ids.to_pylist(), self.values.tolist()

    def orders(self) -> Orders:
        """Return the correct orders."""
        return loop_orders(zip(*self.lists(), strict=True))

    def columns(self) -> dict[str, list[pa.Array]]:
        """Return the columns of each stream. Each column has a row for every row of all streams."""
        values, numbers = pa.array(self.values), pa.array(np.zeros(len(self), np.int32))
        return {"market": [self.ids, values], "initial_resource": [values], "stock_events": [self.ids, numbers]}

    def write_streams(self, folder: Path) -> Path:
        """Write a CSV file of each stream; return the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        values = {"id": self.ids, "value": pa.array(self.values), "number": pa.array(self.values.astype(np.int32))}
        for name, (stream, columns, _) in _FILES.items():
            table = pa.table([*(values[column] for column in columns), self.times], names=[*columns, "at"])
            _write_csv(table.filter(pa.array(self.streams == stream)), folder / f"{name}.csv")
        return folder

    def write_lines(self, path: Path) -> Path:
        """Write one CSV file of all rows in order, "stream,time,id,value"; return its path."""
        _write_csv(pa.table([self.streams, self.times, self.ids, self.values], names=["s", "t", "i", "v"]), path)
        return path


def _write_csv(table: pa.Table, path: Path) -> None:
    pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(include_header=False, quoting_style="none"))


# --- the loop by hand ---


def loop_orders(rows: Iterable[tuple[int, int, str, float]]) -> Orders:
    """Return the orders for rows of (stream, time, id, value). All contestants have to return these orders."""
    cash, held, orders = 0.0, dict[str, int](), Orders()
    for stream, at, name, value in rows:
        if stream == MARKET:
            if value < 500 and held[name] == 0 and cash > value * 1000:
                held[name] = 1000
                cash -= value * 1000
                orders.append((at, name, 1000, value))
        elif stream == CASH:
            cash = value
        else:
            held[name] = int(value)
    return orders


def loop_orders_of_lines(path: Path) -> Orders:
    """Return the orders for a file of `write_lines`."""
    with path.open() as lines:
        rows = (line.split(",") for line in lines)
        return loop_orders((int(stream), int(at), name, float(value)) for stream, at, name, value in rows)


def bought_shares(rows: TradingRows, orders: Sequence[Order]) -> list[float]:
    """Return the share of bought offers in each tenth of all offers."""
    offered = rows.times[rows.streams == MARKET]
    ordered = np.searchsorted(offered, [at for at, *_ in orders])
    tenths = [np.bincount(places * 10 // offered.size, minlength=10) for places in (ordered, np.arange(offered.size))]
    return [float(share) for share in tenths[0] / tenths[1]]


def require_busy(shares: Sequence[float]) -> None:
    """Reject an input with too few purchases.

    Raises
    ------
    WrongAnswerError
        In a tenth, less than `LEAST_SHARE` of the offers is bought.
    """
    for tenth, share in enumerate(shares, 1):
        if share < LEAST_SHARE:
            raise WrongAnswerError(
                f"of the offers of tenth {tenth}, {share:.0%} are bought, and not {LEAST_SHARE:.0%}: the loop is idle"
            )


# --- in Spark ---


def read_streams(spark: SparkSession, folder: Path) -> dict[str, DataFrame]:
    """Return the three streams of `write_streams`."""
    from pyspark.sql import functions as F

    return {
        name: spark.read.schema(schema)
        .csv(str(folder / f"{name}.csv"))
        .withColumn("ts", F.timestamp_micros("at"))
        .drop("at")
        for name, (_, _, schema) in _FILES.items()
    }


def our_orders(frames: Mapping[str, DataFrame]) -> DataFrame:
    from sparkext.streams import cql

    return cql(TRADING).output("buy_event", time="ts", **frames)


def pandas_orders(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Run the loop with `applyInPandas`, in one group of all rows."""
    import pandas as pd

    def buy(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values("ts", kind="stable")
        orders = loop_orders(zip(*(rows[name].tolist() for name in ("stream", "ts", "id", "value")), strict=True))
        return pd.DataFrame(orders, columns=["ts", "id", "num", "price"])[["id", "num", "price", "ts"]]

    return _in_one_group(frames).applyInPandas(buy, _ORDERS_SCHEMA)


def stateful_orders(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Run the loop with `transformWithStateInPandas`: cash is a value state, and stock a map state."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Buying(StatefulProcessor):
        """Reads the states of stock and cash if an offer is cheap enough."""

        def init(self, handle: Any) -> None:
            self._cash = handle.getValueState("cash", "val double")
            self._stock = handle.getMapState("stock", "id string", "num int")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            orders = []
            for row in pd.concat([*rows]).sort_values("ts", kind="stable").itertuples(index=False):
                if row.stream == CASH:
                    self._cash.update((row.value,))
                elif row.stream == STOCK:
                    self._stock.updateValue((row.id,), (int(row.value),))
                elif row.value < 500 and self._stock.getValue((row.id,))[0] == 0:
                    (cash,) = self._cash.get()
                    if cash > row.value * 1000:
                        self._stock.updateValue((row.id,), (1000,))
                        self._cash.update((cash - row.value * 1000,))
                        orders.append((row.id, 1000, row.value, row.ts))
            yield pd.DataFrame(orders, columns=["id", "num", "price", "ts"])

        def close(self) -> None:
            pass

    return _in_one_group(frames).transformWithStateInPandas(Buying(), _ORDERS_SCHEMA, "Append", "None")


def _in_one_group(frames: Mapping[str, DataFrame]) -> GroupedData:
    """Return the rows of all streams, in one group."""
    from pyspark.sql import functions as F

    parts = [
        frames[name].selectExpr(f"{stream} AS stream", f"{row} AS id", f"CAST({value} AS DOUBLE) AS value", "ts")
        for name, stream, row, value in (
            ("market", MARKET, "id", "price"),
            ("initial_resource", CASH, "''", "val"),
            ("stock_events", STOCK, "id", "num"),
        )
    ]
    return parts[0].union(parts[1]).union(parts[2]).withColumn("all", F.lit(0)).groupBy("all")


def collected_orders(frame: DataFrame) -> Orders:
    """Collect the orders of a DataFrame."""
    epoch = datetime(1970, 1, 1, tzinfo=timezone.utc)
    return Orders(
        ((ts.astimezone(timezone.utc) - epoch) // timedelta(microseconds=1), name, num, price)
        for name, num, price, ts in frame.collect()
    )
