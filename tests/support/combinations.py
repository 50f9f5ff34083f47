"""The combinations of parameters that run by default. Every test function runs; `--whole` adds the other combinations.

A query costs a third of a second, and there are thousands of combinations of all parameters. Two marks reduce them;
each states its reason:

- `reduced("values", reason=…)` on a function runs enough combinations for each value of each parameter to run once;
  `reduced("pairs", reason=…)` for each pair of values of two parameters.
- `whole(reason=…)` on one combination, in `pytest.param(…, marks=…)`, runs it only with `--whole`.

A function that is named on the command line runs in every combination.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import pytest

WHOLE = "SPARKEXT_TEST_WHOLE"
"""Set in the environment of this process and its children if every combination runs."""


def runs_whole() -> bool:
    """Return whether every combination runs."""
    return WHOLE in os.environ


def function_of(test: str) -> str:
    """Return the name of a test's function: its id without the parameters."""
    return test.partition("[")[0]


def left_out(items: Sequence[pytest.Item], named: Iterable[str]) -> set[pytest.Item]:
    """Return the tests that do not run by default.

    `named` are the arguments of the command line. Raises `pytest.UsageError` if a mark has no reason, or would exclude
    a function entirely.
    """
    in_full = {function_of(name) for name in named if "::" in name}
    found = set[pytest.Item]()
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        functions[function_of(item.nodeid)].append(item)
    for function, cases in functions.items():
        reductions = [_reduction(mark, function) for item in cases for mark in item.iter_markers("reduced")]
        whole = {item for item in cases if _is_whole(item, function)}
        running = [item for item in cases if item not in whole]
        if not running:
            raise pytest.UsageError(f"{function}: `whole` marks all of it, but every function has to run")
        if function in in_full:
            continue
        found |= whole
        if reductions:
            found |= set(running) - set(covering(running, [_values(item) for item in running], reductions[0]))
    return found


def covering(cases: Sequence[pytest.Item], values: Sequence[Sequence[Hashable]], size: int) -> list[pytest.Item]:
    """Return the first of `cases` that together cover every value (`size` 1) or pair of values (2) of `values`."""
    seen, chosen = set[object](), list[pytest.Item]()
    for case, own in zip(cases, values, strict=True):
        groups = set(itertools.combinations(enumerate(own), min(size, len(own))))
        if not chosen or not groups <= seen:
            seen |= groups
            chosen.append(case)
    return chosen


def _values(item: pytest.Item) -> Sequence[Hashable]:
    return tuple(getattr(getattr(item, "callspec", None), "_idlist", ()))


def _reduction(mark: pytest.Mark, function: str) -> int:
    sizes = {"values": 1, "pairs": 2}
    if len(mark.args) != 1 or mark.args[0] not in sizes or not mark.kwargs.get("reason"):
        raise pytest.UsageError(f'{function}: write reduced("values" or "pairs", reason="…"), not {mark}')
    return sizes[mark.args[0]]


def _is_whole(item: pytest.Item, function: str) -> bool:
    mark = item.get_closest_marker("whole")
    if mark is not None and not mark.kwargs.get("reason"):
        raise pytest.UsageError(f"{function}: write whole(reason=…), not {mark}")
    return mark is not None
