"""The rows of the trading benchmarks: the loop buys until the end, and an idle loop is rejected."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.cases.streams.trading import (
    CASH,
    LEAST_SHARE,
    MARKET,
    TradingRows,
    bought_shares,
    loop_orders_of_lines,
    require_busy,
)
from bench.harness import WrongAnswerError


@pytest.mark.parametrize("offers", [2_000, 20_000])
def test_a_third_of_the_offers_is_bought_in_every_tenth(offers: int) -> None:
    rows = TradingRows.generated(offers)
    shares = bought_shares(rows, rows.orders())
    assert len(shares) == 10 and all(LEAST_SHARE < share < 0.5 for share in shares)
    assert sum(rows.streams == MARKET) == offers
    require_busy(shares)


@pytest.mark.parametrize("stream", [CASH, None])
def test_without_refills_the_loop_is_idle_and_refused(stream: int | None) -> None:
    """Without refills of cash, or without any refills."""
    rows = TradingRows.generated(5_000)
    kept = np.flatnonzero((rows.times == 0) | (rows.streams == MARKET if stream is None else rows.streams != stream))
    idle = TradingRows(rows.streams[kept], rows.times[kept], rows.ids.take(kept), rows.values[kept])
    shares = bought_shares(idle, idle.orders())
    assert shares[0] > 0 and shares[9] == 0
    with pytest.raises(
        WrongAnswerError, match=r"of the offers of tenth \d+, \d+% are bought, and not 30%: the loop is idle"
    ):
        require_busy(shares)


def test_rows_happen_one_by_one_and_a_part_begins_alike() -> None:
    rows = TradingRows.generated(1_000)
    assert (np.diff(rows.times[rows.times > 0]) == 1).all()
    start, part = rows.first(0), rows.first(100)
    assert not start.orders() and len(part) == len(start) + 100
    assert part.orders() == [order for order in rows.orders() if order[0] <= 100]


def test_cash_and_stock_refuse_offers_as_well() -> None:
    """Three of four offers are cheap enough, but far fewer are bought."""
    rows = TradingRows.generated(20_000)
    cheap = sum((rows.streams == MARKET) & (rows.values < 500))
    assert len(rows.orders()) < 0.6 * cheap


def test_lines_of_a_file_give_the_same_orders(tmp_path: Path) -> None:
    rows = TradingRows.generated(2_000)
    assert loop_orders_of_lines(rows.write_lines(tmp_path / "lines.csv")) == rows.orders()


def test_orders_are_shown_in_short() -> None:
    assert str(TradingRows.generated(1_000).orders()).count("stock") == 3
