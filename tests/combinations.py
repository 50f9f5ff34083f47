"""Which combinations of parameters run by default. Every test function runs; `--whole` adds the combinations left out.

A query costs a third of a second, and the combinations of all parameters are thousands. Two marks reduce them, and each
states its reason:

- `reduced("values", reason=…)` on a function: enough of its combinations to run each value of each parameter once;
  `reduced("pairs", reason=…)`: each pair of values of two parameters once.
- `whole(reason=…)` on one combination, in `pytest.param(…, marks=…)`: it runs with `--whole` alone.

A function that is named on the command line runs in every combination.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import pytest

WHOLE = "SPARKEXT_TEST_WHOLE"
"""Set in the environment of this process, and of those that it starts, if every combination runs."""


def runs_whole() -> bool:
    """Return whether every combination runs."""
    return WHOLE in os.environ


def function_of(test: str) -> str:
    """Return the name of a test's function: its id without the parameters."""
    return test.partition("[")[0]


def left_out(items: Sequence[pytest.Item], named: Iterable[str]) -> set[pytest.Item]:
    """Return the tests that do not run by default.

    `named` has the arguments of the command line. Raises `pytest.UsageError` if a mark lacks its reason or would leave
    out a function.
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
    """Return the first of `cases` that together have every value (`size` 1) or pair of values (2) of `values`."""
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
