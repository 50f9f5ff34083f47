"""Orders of calls in the delivery: which stage is called when, and that no item is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from sparkext.engine.delivery import Delivery, Stage, deliver_all, deliver_cooperatively, deliver_depth_first

ITEMS = ["a", "b"]


class Calls:
    """A stage that calls a function."""

    def __init__(self, process: Callable[[str], Iterator[str]], last: tuple[str, ...] = ()) -> None:
        self.process = process
        self.last = last

    def finish(self) -> Iterator[str]:
        return iter(self.last)


class Recorded:
    """Stages that emit `fan_out` items per item, and record their calls."""

    def __init__(self, fan_outs: list[int]) -> None:
        self.asked: list[str] = []
        self.stages: list[Stage] = [self._stage(number, fan_out) for number, fan_out in enumerate(fan_outs)]

    def _stage(self, number: int, fan_out: int) -> Stage:
        def stage(item: str) -> Iterator[str]:
            for made in range(fan_out):
                self.asked.append(f"{number}:{item}")
                yield f"{item}{made}"

        return Calls(stage)


def halves(item: str, threads: int) -> list[str]:
    return [item.lower(), item.upper()]


ALL = [f"{item}{first}{second}" for item in ITEMS for first in range(3) for second in range(2)]


def test_depth_first_has_one_item_under_way_at_every_stage() -> None:
    recorded = Recorded([3, 2])
    given = deliver_depth_first(recorded.stages, iter(ITEMS))
    assert next(given) == "a00"
    assert recorded.asked == ["0:a", "1:a0"]
    assert [next(given), next(given)] == ["a01", "a10"]
    assert recorded.asked == ["0:a", "1:a0", "1:a0", "0:a", "1:a1"]
    assert ["a00", "a01", "a10", *given] == ALL


def test_cooperating_threads_are_asked_for_one_item_each_before_any_is_asked_again() -> None:
    recorded = Recorded([2, 1])
    with ThreadPoolExecutor(2) as pool:
        given = deliver_cooperatively(recorded.stages, ["a"], halves, pool, 2)
        next(given)
        # First both halves at the first stage, then both halves of its output at the second.
        assert [sorted(recorded.asked[:2]), sorted(recorded.asked[2:])] == [["0:A", "0:a"], ["1:A0", "1:a0"]]
        rest = list(given)
    assert len(rest) + 1 == 2 * 2 * 2


def meeting() -> Stage:
    """Return a stage that completes only if two threads process an item each."""
    both = threading.Barrier(2, timeout=20)

    def stage(item: str) -> Iterator[str]:
        both.wait()
        yield item

    return Calls(stage)


def test_cooperating_threads_work_on_parts_of_an_item_at_the_same_time() -> None:
    with ThreadPoolExecutor(2) as pool:
        assert list(deliver_cooperatively([meeting()], ITEMS, halves, pool, 2)) == ["a", "A", "b", "B"]


def test_an_error_in_a_thread_is_the_callers() -> None:
    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match=r"[ab]"):
        list(deliver_cooperatively([Calls(fail)], ITEMS, halves, pool, 2))


def fail(item: str) -> Iterator[str]:
    raise ValueError(item)
    yield


@pytest.mark.parametrize("stages", [0, 1])
def test_no_items_and_no_stages(stages: int) -> None:
    some = Recorded([2][:stages]).stages
    with ThreadPoolExecutor(2) as pool:
        for items in ([], ITEMS):
            expected = [f"{item}{made}" for item in items for made in range(2)] if stages else items
            assert list(deliver_depth_first(some, items)) == expected
            assert list(deliver_cooperatively(some, items, lambda item, threads: [item], pool, 2)) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_stage_yields_when_it_finishes_goes_through_those_behind_it(threads: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        cooperative = partial(deliver_cooperatively, divide=lambda item, threads: [item], pool=pool, threads=threads)
        check_last_items(deliver_depth_first if threads == 1 else cooperative)


def check_last_items(delivery: Delivery) -> None:
    """Check that later stages finish after earlier ones: the second still processes the last items of the first."""
    order: list[str] = []

    def stage(name: str, *last: str) -> Calls:
        def process(item: str) -> Iterator[str]:
            order.append(f"{name} processes")
            yield f"{item}{name}"

        return Calls(process, last)

    stages = [stage("x", "p", "q"), stage("y", "r"), stage("z")]
    given = list(deliver_all(delivery, stages, iter(ITEMS)))
    assert sorted(given[:2]) == ["axyz", "bxyz"]
    assert sorted(given[2:4]) == ["pyz", "qyz"]
    assert given[4:] == ["rz"]
    assert [order.count(f"{name} processes") for name in "xyz"] == [2, 4, 5]
    assert sorted(deliver_all(delivery, [], ITEMS)) == ITEMS
