"""NEXMark's events of an online auction: people, auctions and bids, the same in every run.

Follows the generator of Apache Beam (`beam-sdks-java-nexmark`) with one generator and its other defaults: 10,000 events
per second; every 50 events contain one person and three auctions. Event n draws from a Java `Random` seeded with n, so
values equal Beam's; `tests/bench/test_nexmark.py` compares them. Texts that no query here uses are drawn and discarded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

BASE_MS = 1_436_918_400_000
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]

PEOPLE, AUCTIONS, EVENTS = 1, 3, 50
"""Each 50 events are people, then auctions, then bids."""

_FIRST_ID = 1_000
_FIRST_CATEGORY, _CATEGORIES = 10, 5
_DELAY_US = 100
_ACTIVE_PEOPLE, _IN_FLIGHT, _LEAD, _HOT = 1_000, 100, 10, 100
_HOT_SELLERS, _HOT_AUCTIONS, _HOT_BIDDERS = 4, 2, 4
_SHORTEST_TEXT = 3

_MULTIPLIER = np.uint64(0x5DEECE66D)
_MASK = np.uint64((1 << 48) - 1)


@dataclass(frozen=True)
class Events:
    """The tables of all events, in order. Times are UTC, with the precision of milliseconds."""

    people: pa.Table
    auctions: pa.Table
    bids: pa.Table


def events(count: int) -> Events:
    """Return the first `count` events."""
    people, auctions, bids = _drawn(count)
    names = [f"{FIRST_NAMES[first]} {LAST_NAMES[last]}" for first, last in people[:, 1:3]]
    return Events(
        pa.table(
            {
                "id": people[:, 0],
                "name": names,
                "city": pa.array(CITIES).take(pa.array(people[:, 3])),
                "state": pa.array(STATES).take(pa.array(people[:, 4])),
                "at": _times(people[:, 5]),
            }
        ),
        pa.table(
            {
                "id": auctions[:, 0],
                "initial_bid": auctions[:, 1],
                "reserve": auctions[:, 2],
                "at": _times(auctions[:, 3]),
                "expires": _times(auctions[:, 4]),
                "seller": auctions[:, 5],
                "category": auctions[:, 6],
            }
        ),
        pa.table({"auction": bids[:, 0], "bidder": bids[:, 1], "price": bids[:, 2], "at": _times(bids[:, 3])}),
    )


def _times(milliseconds: Any) -> pa.Array:
    return pa.array(milliseconds).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


@njit
def _bits(state: Any, bits: int) -> int:
    """Draw `bits` bits, at most 31, like `java.util.Random`."""
    state[0] = (state[0] * _MULTIPLIER + np.uint64(0xB)) & _MASK
    return np.int64(state[0] >> np.uint64(48 - bits))


@njit
def _below(state: Any, bound: int) -> int:
    drawn = _bits(state, 31)
    if bound & -bound == bound:
        return (bound * drawn) >> 31
    value = drawn % bound
    while drawn - value + (bound - 1) >= 1 << 31:
        drawn = _bits(state, 31)
        value = drawn % bound
    return value


@njit
def _price(state: Any) -> int:
    high = _bits(state, 26) << 27
    fraction = (high + _bits(state, 27)) * 2.0**-53
    return np.int64(np.floor(10.0 ** (fraction * 6.0) * 100.0 + 0.5))


@njit
def _skip_text(state: Any, most: int) -> None:
    for _ in range(_SHORTEST_TEXT + _below(state, most - _SHORTEST_TEXT)):
        if _below(state, 13):
            _below(state, 26)


@njit
def _last_auction(event: int) -> int:
    epoch, offset = event // EVENTS, event % EVENTS
    if offset < PEOPLE:
        return (epoch - 1) * AUCTIONS + AUCTIONS - 1
    return epoch * AUCTIONS + min(offset - PEOPLE, AUCTIONS - 1)


@njit
def _any_person(event: int, state: Any) -> int:
    """Draw the number of a person: one of the latest people, or one of the next."""
    people = event // EVENTS + 1
    active = min(people, _ACTIVE_PEOPLE)
    return people - active + _below(state, active + _LEAD)


@njit
def _any_auction(event: int, state: Any) -> int:
    last = _last_auction(event)
    first = max(last - _IN_FLIGHT, 0)
    return first + _below(state, last - first + 1 + _LEAD)


@njit
def _drawn(count: int) -> tuple[Any, Any, Any]:
    """Draw all events: an int64 array of each type, with a row per event."""
    people = np.empty((count, 6), np.int64)
    auctions = np.empty((count, 7), np.int64)
    bids = np.empty((count, 4), np.int64)
    sizes = np.zeros(3, np.int64)
    state = np.empty(1, np.uint64)
    for event in range(count):
        state[0] = (np.uint64(event) ^ _MULTIPLIER) & _MASK
        at = BASE_MS + event * _DELAY_US // 1000
        kind = event % EVENTS
        person = event // EVENTS
        if kind < PEOPLE:
            row = people[sizes[0]]
            sizes[0] += 1
            row[0] = person + _FIRST_ID
            row[1] = _below(state, 11)
            row[2] = _below(state, 9)
            _skip_text(state, 7)
            _skip_text(state, 5)
            for _ in range(4):
                _below(state, 10_000)
            row[3] = _below(state, 10)
            row[4] = _below(state, 6)
            row[5] = at
        elif kind < PEOPLE + AUCTIONS:
            row = auctions[sizes[1]]
            sizes[1] += 1
            row[0] = _last_auction(event) + _FIRST_ID
            hot = _below(state, _HOT_SELLERS) > 0
            row[5] = (person // _HOT * _HOT if hot else _any_person(event, state)) + _FIRST_ID
            row[6] = _FIRST_CATEGORY + _below(state, _CATEGORIES)
            row[1] = _price(state)
            row[3] = at
            ahead = BASE_MS + (event + _IN_FLIGHT * EVENTS // AUCTIONS) * _DELAY_US // 1000
            row[4] = at + 1 + _below(state, max((ahead - at) * 2, 1))
            _skip_text(state, 20)
            _skip_text(state, 100)
            row[2] = row[1] + _price(state)
        else:
            row = bids[sizes[2]]
            sizes[2] += 1
            hot = _below(state, _HOT_AUCTIONS) > 0
            row[0] = (_last_auction(event) // _HOT * _HOT if hot else _any_auction(event, state)) + _FIRST_ID
            hot = _below(state, _HOT_BIDDERS) > 0
            row[1] = (person // _HOT * _HOT + 1 if hot else _any_person(event, state)) + _FIRST_ID
            row[2] = _price(state)
            row[3] = at
    return people[: sizes[0]], auctions[: sizes[1]], bids[: sizes[2]]
