"""Which tests with Spark run: a query costs a third of a second, and there are thousands.

By default a fourth of them, as a hash of their names chooses, those marked `always` among them and none marked `whole`,
and all that are named one by one. Of each that has parameters a sixth of as many combinations as it takes to have every
value once; of what is done in several ways a hash chooses some to be done in all. `--whole` runs everything, as
`make suites` does; whoever works on a room runs its tests so.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import defaultdict
from collections.abc import Iterable

import pytest

WHOLE = "SPARKEXT_TEST_WHOLE"
"""Set in the environment of this process where everything runs."""


_FUNCTIONS, _CASES = 4, 6


def is_chosen(case: object, of: int) -> bool:
    """Return whether one of so many cases is to be done in all ways: this one, by its text."""
    return WHOLE in os.environ or zlib.crc32(str(case).encode()) % of == 0


def some(items: Iterable[pytest.Item], named: Iterable[str]) -> set[pytest.Item]:
    """Return which tests run by default: see above. `named` is what the command line names.

    Without Spark all do that are not marked `whole`.
    """
    cases: dict[str, list[tuple[pytest.Item, set[tuple[int, str]]]]] = defaultdict(list)
    kept = set[pytest.Item]()
    asked = {name.partition("[")[0] for name in named if "::" in name}
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            values = getattr(getattr(item, "callspec", None), "_idlist", ())
            cases[item.nodeid.partition("[")[0]].append((item, set(enumerate(values))))
        elif not item.get_closest_marker("whole"):
            kept.add(item)
    for function, combinations in cases.items():
        marks = {mark.name for mark in combinations[0][0].iter_markers()}
        is_due = "always" in marks or is_chosen(function, of=_FUNCTIONS)
        if function in asked or ("whole" not in marks and is_due):
            covering = _covering(combinations)
            kept.update(covering[: math.ceil(len(covering) / _CASES)])
    return kept


def _covering(cases: list[tuple[pytest.Item, set[tuple[int, str]]]]) -> list[pytest.Item]:
    """Return cases in which every value of every parameter is."""
    seen, covering = set[tuple[int, str]](), list[pytest.Item]()
    for item, values in sorted(cases, key=lambda case: zlib.crc32(case[0].nodeid.encode())):
        if not covering or not values <= seen:
            seen |= values
            covering.append(item)
    return covering
