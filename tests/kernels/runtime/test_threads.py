"""Work shared by threads: every part once, results in order, and a bounded number of parts in flight."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from sparkext.kernels.runtime.threads import _WORTH_SHARING, map_ahead, run_each, run_in_parts, run_in_threads


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 1, _WORTH_SHARING - 1, _WORTH_SHARING, _WORTH_SHARING + 1])
def test_parts_cover_everything_once(size: int, threads: int) -> None:
    parts: list[tuple[int, int]] = []
    run_in_parts(lambda start, stop: parts.append((start, stop)), size, threads)
    ends = [0, *(stop for _, stop in sorted(parts))]
    assert [start for start, _ in sorted(parts)] == ends[:-1]
    assert ends[-1] == size
    assert len(parts) == (0 if size == 0 else threads if size >= _WORTH_SHARING else 1)


def test_empty_parts_are_left_out_and_one_part_needs_no_thread() -> None:
    ran: list[tuple[int, int, bool]] = []
    run_in_threads(lambda a, b: ran.append((a, b, threading.current_thread() is threading.main_thread())), [0, 0, 5, 5])
    assert ran == [(0, 5, True)]


def test_an_error_in_a_thread_is_raised() -> None:
    def work(start: int, stop: int) -> None:
        if start:
            raise ValueError(f"part {start} to {stop}")

    with pytest.raises(ValueError, match="part 3 to 6"):
        run_in_threads(work, [0, 3, 6])


@pytest.mark.parametrize("threads", [1, 3])
def test_each_item_is_worked_on_once_and_none_begins_after_an_error(threads: int) -> None:
    seen: list[tuple[int, str]] = []
    run_each(lambda number, text: seen.append((number, text)), range(3), "abc", threads=threads)
    assert sorted(seen) == [(0, "a"), (1, "b"), (2, "c")]
    begun: list[int] = []

    def fail(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        raise ValueError(f"item {number}")

    with pytest.raises(ValueError, match="item 0"):
        run_each(fail, range(200), threads=threads)
    assert len(begun) < 200


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_results_come_in_order(count: int, threads: int) -> None:
    def slow(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return -number

    assert list(map_ahead(slow, range(count), threads)) == [-number for number in range(count)]


def test_no_more_is_computed_ahead_than_asked_for() -> None:
    asked = 0
    items = iter(range(100))

    def counted() -> int:
        nonlocal asked
        asked += 1
        return next(items)

    results = map_ahead(lambda number: number, iter(counted, 100), 2)
    for taken in range(1, 20):
        next(results)
        assert asked <= taken + 2
    results.close()


def test_an_error_of_one_item_comes_in_its_turn() -> None:
    results = map_ahead(lambda number: 6 // number, [2, 3, 0, 1], 2)
    assert [next(results), next(results)] == [3, 2]
    with pytest.raises(ZeroDivisionError):
        next(results)


_LIMITED = """
import os, resource, sys, threading
from pathlib import Path
from sparkext.kernels.runtime.threads import map_ahead, may_begin, pool, run_in_threads

mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (mapped + (int(sys.argv[1]) << 20),) * 2)

def who(*_):
    return threading.current_thread() is threading.main_thread()

parts = []
run_in_threads(lambda start, stop: parts.append((start, stop, who())), [0, 2, 4])
with pool(2) as executor:
    began = threading.active_count() - 1
    mapped_by = list(executor.map(who, range(3)))
    submitted = executor.submit(who).result()
    failed = type(executor.submit(int, "x").exception()).__name__
print(sorted(parts), list(map_ahead(who, range(3), 2)), began, mapped_by, submitted, failed, may_begin(2))
"""


@pytest.mark.parametrize(
    ("room", "by_caller", "began", "may_begin"), [(64, True, 0, 1), (1024, False, 2, 2)], ids=["little", "ample"]
)
def test_threads_begin_only_where_a_limit_has_room(room: int, by_caller: bool, began: int, may_begin: int) -> None:
    """If a thread's first allocation failed, its caller would wait for it forever."""
    ran = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(room)], capture_output=True, text=True, timeout=60, check=True
    )
    parts = [(0, 2, by_caller), (2, 4, by_caller)]
    told = f"{parts} {[by_caller] * 3} {began} {[by_caller] * 3} {by_caller} ValueError {may_begin}"
    assert ran.stdout.strip() == told, ran.stdout + ran.stderr
