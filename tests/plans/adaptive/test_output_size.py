"""The output-size controller, against the inequality that its docstring states."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.adaptive.operator_summary import merge_summaries
from sparkext.plans.adaptive.output_size import BudgetLimits, OutputSizeController

MAX_ROWS = 131_072
LIMITS = BudgetLimits(min_rows=1_024, max_rows=MAX_ROWS, max_bytes=1 << 40, memory_fraction=1.0)

# Enough rows to outweigh the prior of an estimate completely.
MANY = 10**30

COPIES = 3


class Memory:
    """Free memory that a test sets and a simulated pipeline uses."""

    def __init__(self, free: int | None) -> None:
        self.free = free

    def __call__(self) -> tuple[int, str] | None:
        return None if self.free is None else (self.free, "cgroup")


def controller(
    row_bytes: Sequence[float], free: int | None, limits: BudgetLimits = LIMITS, keep_decisions: int = 256
) -> OutputSizeController:
    ticks = itertools.count()
    return OutputSizeController(
        row_bytes, limits, Memory(free), clock=lambda: float(next(ticks)), keep_decisions=keep_decisions
    )


def teach_fanouts(subject: OutputSizeController, fanouts: Sequence[float]) -> None:
    """Make the fan-out of operator j equal `fanouts[j]` by observing very many rows."""
    for operator, fanout in enumerate(fanouts):
        subject.observe(operator, MANY, round(MANY * fanout), None)


def bytes_in_flight(
    rows: float, operator: int, row_bytes: Sequence[float], fanouts: Sequence[float], max_rows: int
) -> float:
    """Return the left side of the inequality in the docstring, spelled out."""
    total = 0.0
    flowing = rows
    for number in range(operator, len(row_bytes)):
        copies = COPIES if number == len(row_bytes) - 1 else 1
        if number > operator:
            flowing *= fanouts[number]
        held = flowing if number == operator else min(flowing, max_rows)
        total += held * row_bytes[number] * copies
    return total


def test_the_worked_example_of_the_docstring() -> None:
    memory = Memory(10_000_000)
    subject = OutputSizeController([16, 24, 100], LIMITS, memory)
    teach_fanouts(subject, [1, 4, 1])
    budgets = []
    for operator, row_bytes in enumerate([16, 24, 300]):
        budgets.append(subject.budget(operator).rows)
        assert memory.free is not None
        memory.free -= budgets[-1] * row_bytes
    assert budgets == [7_621, 30_487, 30_487]
    assert memory.free is not None and memory.free >= 0


@pytest.mark.parametrize(
    ("row_bytes", "fanouts", "free", "operator", "expected"),
    [
        # The gather alone: its rows count three times.
        ([100], [1], 15_000_000, 0, 50_000),
        ([100], [1], 39_321_599, 0, 131_071),
        ([100], [1], 39_321_600, 0, 131_072),
        ([100], [1], 10**15, 0, 131_072),
        ([100], [1], 307_200, 0, 1_024),
        ([100], [1], 307_199, 0, 1_024),
        ([100], [1], 0, 0, 1_024),
        # The minimum is at most a mebibyte, and at least a row.
        ([1_025], [1], 0, 0, 1_023),
        ([1 << 20], [1], 0, 0, 1),
        ([100e6], [1], 0, 0, 1),
        # A join shares with the following gather, which shares with no operator.
        ([20, 40], [1, 1], 1_400_000, 0, 10_000),
        ([20, 40], [1, 1], 1_500_000, 1, 12_500),
        # A join's own fan-out does not count, only those after it.
        ([20, 40, 40], [9, 1, 1], 1_800_000, 0, 10_000),
        ([20, 40, 40], [9, 2, 1], 1_700_000, 0, 5_000),
        # A selective successor leaves nearly all memory to its predecessor.
        ([20, 40, 40], [1, 0, 1], 1_000_000, 0, 50_000),
        ([20, 40, 40], [1, 0, 1], 1_333_333, 1, 8_333),
        # An enormous fan-out is limited to max_rows: 131,072 × 120 bytes are reserved, the rest is its own.
        ([20, 40], [1, 10_000], 131_072 * 120 + 1_000_000, 0, 50_000),
        # If memory is too small for that, the minimal budget remains.
        ([20, 40], [1, 10_000], 1_000_000, 0, 1_024),
        # The limited operator need not be the last: 131,072 × 40 bytes are reserved; the gather's fan-out is 1.
        ([20, 40, 40], [1, 1_000, 0.001], 131_072 * 40 + 1_400_000, 0, 10_000),
        # Rows without payload count as one byte.
        ([0], [1], 150_000, 0, 50_000),
    ],
)
def test_budgets(row_bytes: list[float], fanouts: list[float], free: int, operator: int, expected: int) -> None:
    subject = controller(row_bytes, free)
    teach_fanouts(subject, fanouts)
    assert subject.budget(operator).rows == pytest.approx(expected, abs=1)


@pytest.mark.parametrize(
    ("fraction", "tasks", "expected"), [(1.0, 1, 50_000), (0.5, 1, 25_000), (1.0, 4, 12_500), (0.5, 4, 6_250)]
)
def test_memory_is_shared(fraction: float, tasks: int, expected: int) -> None:
    limits = BudgetLimits(1_024, MAX_ROWS, 1 << 40, fraction)
    subject = OutputSizeController([100], limits, Memory(15_000_000), lambda limit: {"cgroup": tasks}[limit])
    assert subject.budget(0).rows == expected
    threads = BudgetLimits(1_024, MAX_ROWS, 1 << 40, fraction, threads=tasks)
    assert controller([100], 15_000_000, threads).budget(0).rows == expected


def test_tasks_are_counted_anew_for_every_budget() -> None:
    running = iter([1, 4, 2, 2])
    subject = OutputSizeController([100], LIMITS, Memory(15_000_000), lambda limit: next(running))
    assert [subject.budget(0).rows for _ in range(4)] == [50_000, 12_500, 25_000, 25_000]


def test_outputs_are_bounded_in_bytes() -> None:
    limits = BudgetLimits(1_024, MAX_ROWS, 10_000_000, 1.0)
    subject = controller([16, 1_000], 10**15, limits)
    assert subject.budget(0) == (MAX_ROWS, 10_000_000)
    assert subject.budget(1) == (10_000, 10_000_000)
    assert controller([16, 1_000], None, limits).budget(1) == (10_000, 10_000_000)
    # The copies use a third of the free memory; a mebibyte is always allowed.
    assert controller([16, 1_000], 15_000_000, limits).budget(1) == (5_000, 5_000_000)
    assert controller([16, 1_000], 15_000_000, limits).most_bytes(0) == 10_000_000
    assert controller([16, 1_000], 0, limits).budget(1) == (1_024, 1 << 20)
    assert controller([16, 1e9], 0, limits).budget(1) == (1, 1 << 20)


def test_later_operators_are_bounded_in_bytes_too() -> None:
    """A gather of wide rows never holds more than its byte limit, and leaves the rest to the join before it."""
    limits = BudgetLimits(1_024, MAX_ROWS, 64 << 20, 0.5)
    assert controller([16, 10_000], 1 << 30, limits).budget(0).rows == MAX_ROWS


def test_budgets_fall_at_once_and_grow_back_in_steps() -> None:
    """Memory that one operator frees seems free to the next, and other processes vary: budgets must not jump."""
    memory = Memory(10**12)
    subject = OutputSizeController([100], LIMITS, memory)
    assert subject.budget(0).rows == MAX_ROWS
    memory.free = 0
    assert subject.budget(0).rows == 1_024
    memory.free = 10**12
    growing = [subject.budget(0).rows for _ in range(8)]
    assert growing == [2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 131_072]
    trace = []
    for moment in range(40):
        memory.free = 15_000_000 if moment % 2 else 30_000_000
        trace.append(subject.budget(0).rows)
    assert trace[-6:] == [100_000, 50_000] * 3


def test_freed_memory_is_given_back_before_a_budget_is_cut() -> None:
    memory = Memory(10**12)
    asked = []

    def reclaim() -> bool:
        asked.append(memory.free)
        memory.free = 30_000_000
        return len(asked) == 1

    subject = OutputSizeController([100], LIMITS, memory, reclaim=reclaim)
    assert subject.budget(0).rows == MAX_ROWS
    assert asked == []
    memory.free = 15_000_000
    assert subject.budget(0).rows == 100_000  # from memory that it has returned
    memory.free = 15_000_000
    assert subject.budget(0).rows == 50_000  # nothing was returned
    assert asked == [15_000_000, 15_000_000]


def test_a_budget_of_one_row_grows_back() -> None:
    memory = Memory(0)
    subject = OutputSizeController([1 << 30], BudgetLimits(64, 64, 1 << 50, 1.0), memory)
    assert subject.budget(0).rows == 1
    memory.free = 1 << 50
    assert [subject.budget(0).rows for _ in range(7)] == [2, 4, 8, 16, 32, 64, 64]


def test_unknown_headroom_gives_the_upper_bound() -> None:
    subject = controller([16, 1e6], None)
    assert [subject.budget(0).rows, subject.budget(1).rows] == [MAX_ROWS, MAX_ROWS]


@pytest.mark.parametrize("free", [None, 0, 10**15])
def test_one_row_at_a_time(free: int | None) -> None:
    subject = controller([16, 100], free, BudgetLimits(1, 1, 1 << 40, 0.5, 2))
    budgets = []
    for operator in (0, 1, 1, 0, 1):
        budgets.append(subject.budget(operator).rows)
        subject.observe(operator, 1, 1, 100)
    assert budgets == [1] * 5


def test_the_row_size_follows_what_was_produced() -> None:
    subject = controller([100], 15_000_000)
    assert subject.budget(0).rows == 50_000
    subject.observe(0, 50_000, 50_000, 50_000 * 400)
    halfway = subject.budget(0).rows
    for _ in range(100):
        subject.observe(0, 10_000, 10_000, 10_000 * 400)
    assert 12_500 < halfway < 13_000
    assert subject.budget(0).rows == 12_500


def test_unknown_sizes_and_empty_outputs_leave_the_row_size_alone() -> None:
    subject = controller([100], 15_000_000)
    subject.observe(0, 10_000, 0, 4_096)
    subject.observe(0, 10_000, 10_000, None)
    assert subject.budget(0).rows == 50_000


def test_matches_that_continue_count_towards_the_rows_that_have_them() -> None:
    """The prior is 1,024 rows with one match each; calls that complete no row add four matches to each."""
    subject = controller([20, 40], 6_200_000)
    for _ in range(4):
        subject.observe(1, 0, 1_024, None)
    assert subject.budget(0).rows == 6_200_000 // (20 + 5 * 120)


def test_a_very_long_run_of_matches_is_forgotten_in_time() -> None:
    subject = controller([20, 40], 131_072 * 120 + 1_000_000)
    for _ in range(10_000):
        subject.observe(1, 0, 10_000, None)
    assert subject.budget(0).rows == pytest.approx(50_000, abs=1)
    for _ in range(500):
        subject.observe(1, 100_000, 0, None)
    assert [subject.budget(0).rows for _ in range(2)] == [pytest.approx(100_000, abs=2), MAX_ROWS]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 10, 9, 0.5, 1), "1 <= min_rows <= max_rows, got 0 and 10"),
        ((11, 10, 9, 0.5, 1), "1 <= min_rows <= max_rows, got 11 and 10"),
        ((1, 10, 0, 0.5, 1), "max_bytes"),
        ((1, 10, 9, 0.0, 1), "memory_fraction"),
        ((1, 10, 9, 1.5, 1), "memory_fraction"),
        ((1, 10, 9, 0.5, 0), "threads"),
    ],
)
def test_impossible_limits(values: tuple[int, int, int, float, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BudgetLimits(*values)


def test_a_pipeline_has_operators() -> None:
    with pytest.raises(ValueError, match="at least one operator"):
        controller([], 1)


FANOUTS = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.001, 10_000))
CHAINS = st.lists(st.tuples(st.floats(0.1, 100_000), FANOUTS), min_size=1, max_size=6)
BOUNDS = st.tuples(st.integers(1, 200_000), st.integers(1, 200_000)).map(sorted)
SHARES = st.tuples(st.floats(0.01, 1.0), st.integers(1, 64))
FREE = st.one_of(st.integers(0, 10**8), st.integers(0, 10**13))


def build(
    chain: list[tuple[float, float]], bounds: list[int], shares: tuple[float, int], free: int
) -> OutputSizeController:
    subject = controller([size for size, _ in chain], free, BudgetLimits(bounds[0], bounds[1], 1 << 60, *shares))
    teach_fanouts(subject, [fanout for _, fanout in chain])
    return subject


@given(CHAINS, BOUNDS, SHARES, FREE)
def test_a_budget_keeps_its_bounds_and_its_own_rows_fit(
    chain: list[tuple[float, float]], bounds: list[int], shares: tuple[float, int], free: int
) -> None:
    subject = build(chain, bounds, shares, free)
    for operator, (row_bytes, _) in enumerate(chain):
        budget = subject.budget(operator).rows
        least = max(1, min(bounds[0], int((1 << 20) / max(row_bytes, 1.0))))
        assert least <= budget <= bounds[1]
        if budget > least:
            assert budget * row_bytes <= free * shares[0] / shares[1] * (1 + 1e-9)


@given(CHAINS, BOUNDS, SHARES, FREE, FREE)
def test_more_headroom_never_gives_less(
    chain: list[tuple[float, float]], bounds: list[int], shares: tuple[float, int], free: int, more: int
) -> None:
    less, greater = build(chain, bounds, shares, free), build(chain, bounds, shares, free + more)
    for operator in range(len(chain)):
        assert less.budget(operator).rows <= greater.budget(operator).rows


@given(CHAINS, SHARES, FREE)
def test_a_budget_is_the_largest_that_satisfies_the_inequality(
    chain: list[tuple[float, float]], shares: tuple[float, int], free: int
) -> None:
    sizes = [max(size, 1.0) for size, _ in chain]
    fanouts = [fanout for _, fanout in chain]
    usable = free * shares[0] / shares[1]
    subject = build(chain, [1, MAX_ROWS], shares, free)
    for operator in range(len(chain)):
        budget = subject.budget(operator).rows
        if budget > 1:
            assert bytes_in_flight(budget, operator, sizes, fanouts, MAX_ROWS) <= usable * (1 + 1e-6)
        if budget < MAX_ROWS:
            beyond = (budget + 1) * (1 + 1e-6)
            assert bytes_in_flight(beyond, operator, sizes, fanouts, MAX_ROWS) > usable * (1 - 1e-6)


def test_decisions_tell_what_was_asked_and_produced() -> None:
    subject = controller([20, 40], 1_400_000)
    for operator, produced in [(0, 7), (1, 5), (1, 2)]:
        subject.budget(operator)
        subject.observe(operator, 10, produced, None)
    assert [tuple(decision)[:5] for decision in subject.decisions] == [
        (0.0, 0, 1_400_000, "cgroup", 10_000),
        (1.0, 1, 1_400_000, "cgroup", 11_666),
        (2.0, 1, 1_400_000, "cgroup", 11_666),
    ]
    assert [decision.produced for decision in subject.decisions] == [7, 5, 2]


def test_unknown_headroom_is_recorded_as_such() -> None:
    subject = controller([40], None)
    subject.budget(0)
    subject.observe(0, 1, 1, 40)
    assert [(each.headroom, each.limit) for each in subject.decisions] == [(None, None)]
    assert subject.summaries()[0]["headroom_min"] is None


@pytest.mark.parametrize("keep", [0, 1, 2, 8, 33])
@pytest.mark.parametrize("calls", [1, 2, 1_000])
def test_decisions_are_bounded_and_cover_the_task(keep: int, calls: int) -> None:
    subject = controller([20, 40], 1_000_000, keep_decisions=keep)
    for operator in [0, 1] * calls:
        subject.budget(operator)
        subject.observe(operator, 1, 1, None)
    kept = subject.decisions
    assert len(kept) <= keep
    for operator in (0, 1):
        times = [decision.time for decision in kept if decision.operator == operator]
        assert len(times) >= min(calls, keep // 2) / 2
        assert not times or times[0] == operator
        if len(times) > 2:
            assert len({later - earlier for earlier, later in itertools.pairwise(times)}) == 1
            assert times[-1] > calls


def test_a_summary_counts_everything_and_is_json() -> None:
    memory = Memory(10_000_000)
    subject = OutputSizeController([100], LIMITS, memory)
    for free in (10**9, 15_000_000, 1_350_000, 600_000, 0):
        memory.free = free
        budget = subject.budget(0).rows
        subject.observe(0, budget, budget // 2, None)
    (summary,) = subject.summaries()
    assert summary == {
        "operator": 0,
        "calls": 5,
        "budget_min": 1_024,
        "budget_median": 4_096,  # 4,500, rounded down to four leading bits
        "budget_max": 131_072,
        "headroom_min": 0,
        "headroom_limit": "cgroup",
        "rows_in": 50_000 + 2_000 + 4_500 + 1_024 + 131_072,
        "rows_out": 25_000 + 1_000 + 2_250 + 512 + 65_536,
        "budget_counts": [[1_024, 1], [1_920, 1], [4_096, 1], [49_152, 1], [131_072, 1]],
    }
    assert json.loads(json.dumps(subject.summaries())) == subject.summaries()


def test_an_operator_that_never_ran_has_an_empty_summary() -> None:
    subject = controller([20, 40], 1_000_000)
    subject.budget(0)
    idle = subject.summaries()[1]
    assert (idle["calls"], idle["budget_min"], idle["budget_median"], idle["budget_max"]) == (
        0,
        None,
        None,
        None,
    )
    (merged,) = merge_summaries([[idle], [idle]])
    assert merged == idle


def test_a_constant_budget_has_an_exact_median() -> None:
    subject = controller([100], None, BudgetLimits(1, 100_000, 1 << 40, 0.5))
    subject.budget(0)
    assert subject.summaries()[0]["budget_median"] == 100_000


@given(st.lists(st.integers(1, MAX_ROWS), min_size=1, max_size=50))
def test_the_median_is_within_an_eighth(budgets: list[int]) -> None:
    memory = Memory(0)
    subject = OutputSizeController([1], BudgetLimits(1, MAX_ROWS, 1 << 40, 1.0), memory)
    for budget in sorted(budgets, reverse=True):
        memory.free = 3 * budget
        assert subject.budget(0).rows == budget
    exact = statistics.median_low(budgets)
    median = subject.summaries()[0]["budget_median"]
    assert median is not None
    assert exact * 7 / 8 <= median <= exact


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 10**7)), max_size=60))
def test_merged_tasks_look_like_one_task(calls: list[tuple[int, int, int]]) -> None:
    """Calls (task, operator, free bytes) are made once by four controllers and once by one."""
    memory = Memory(0)
    tasks = [OutputSizeController([20, 40], LIMITS, memory) for _ in range(4)]
    whole = OutputSizeController([20, 40], LIMITS, memory)
    for task, operator, memory.free in sorted(calls, key=lambda call: -call[2]):
        for subject in (tasks[task], whole):
            subject.budget(operator)
            subject.observe(operator, task, task, None)
    parts = [task.summaries() for task in tasks]
    assert merge_summaries(parts) == whole.summaries()
    assert merge_summaries([merge_summaries(parts[:2]), merge_summaries(parts[2:])]) == whole.summaries()
    assert merge_summaries(reversed(parts)) == whole.summaries()


def test_merging_nothing() -> None:
    assert merge_summaries([]) == []


def test_merging_keeps_the_tightest_headroom_and_its_limit() -> None:
    def task(free: int, limit: str) -> OutputSizeController:
        subject = OutputSizeController([8], LIMITS, lambda: (free, limit))
        subject.budget(0)
        return subject

    tasks = [task(500, "available"), task(300, "rlimit_as"), task(400, "cgroup")]
    (merged,) = merge_summaries(each.summaries() for each in tasks)
    assert (merged["headroom_min"], merged["headroom_limit"]) == (300, "rlimit_as")


@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([0, 10**6, 49_999_999, 50_000_000, 50_000_001, 10**12]),
            st.integers(0, 10_000),
        ),
        max_size=30,
    )
)
def test_ample_memory_shortens_the_way_and_changes_no_budget(steps: list[tuple[int, int, int]]) -> None:
    """50 MB: one output of each of two joins and three copies of the payload, of 10 MB each."""
    free = [0]
    limits = BudgetLimits(1_024, MAX_ROWS, 10_000_000, 1.0)
    both = [OutputSizeController([16, 16, 1_000], limits, lambda: (free[0], "cgroup")) for _ in range(2)]
    both[1]._ample = math.inf
    for operator, available, produced in steps:
        free[0] = available
        short, long = (each.budget(operator) for each in both)
        assert short == long
        for each in both:
            each.observe(operator, 100, produced, produced * 2_000 if operator == 2 else None)
    assert both[0].summaries() == both[1].summaries()
