"""The routing table of an exchange, compared with a table that lists every bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.shuffle.routing import RoutingTable

slots_of_a_line = st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True).map(tuple)
changes = st.dictionaries(st.integers(0, 11), slots_of_a_line, max_size=12)


@given(st.lists(changes, max_size=4))
def test_lines_are_where_they_were_last_sent(sent: list[dict[int, tuple[int, ...]]]) -> None:
    table = RoutingTable(12, 5)
    everywhere = {line: (line % 5,) for line in range(12)}
    for number, moves in enumerate(sent, 1):
        before, table = table, table.followed(moves)
        had, everywhere = everywhere, {**everywhere, **moves}
        assert table.version == number
        assert {line: table.slots_of(line) for line in range(12)} == everywhere
        for slot in range(5):
            assert sorted(table.lines_of(slot)) == [line for line in range(12) if slot in everywhere[line]]
        added = {line: {*everywhere[line]} - {*had[line]} for line in range(12)}
        assert {line: {*slots} for line, slots in table.new_slots(before).items()} == {
            line: slots for line, slots in added.items() if slots
        }


def test_lines_that_come_home_leave_no_entry() -> None:
    away = RoutingTable(10_000, 1000).followed({7: (8,), 1007: (7, 9)})
    assert away.moved == {7: (8,), 1007: (7, 9)}
    assert away.followed({7: (7,)}).moved == {1007: (7, 9)}
    assert away.followed({7: (7,), 1007: (7,)}).moved == {}


@pytest.mark.parametrize(
    ("lines", "slots", "moved"),
    [
        (0, 1, {}),
        (1, 0, {}),
        (4, 2, {4: (0,)}),
        (4, 2, {-1: (0,)}),
        (4, 2, {0: (2,)}),
        (4, 2, {0: (-1,)}),
        (4, 2, {0: ()}),
        (4, 2, {0: (1, 1)}),
    ],
)
def test_what_is_no_table(lines: int, slots: int, moved: dict[int, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match=r"needs a line and a slot|cannot go to slots"):
        RoutingTable(lines, slots, moved)
