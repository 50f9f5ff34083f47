"""Which combinations of a test's parameters run: with Spark a query costs a third of a second, and there are thousands.

There are tests enough in which each value of each parameter is in one at least, together with values that a hash deals
out; by default a third of those run. Of what is done in several ways a hash chooses some to be done in all. `--whole`
runs everything, as `make suites` does.
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


_LEAST, _ONE_IN = 2, 3


def is_chosen(case: object, of: int) -> bool:
    """Return whether one of so many cases is to be done in all ways: this one, by its text."""
    return WHOLE in os.environ or zlib.crc32(str(case).encode()) % of == 0


def some(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return which tests run by default: of those with Spark and with parameters a part, two of each at least."""
    cases: dict[str, list[tuple[pytest.Item, set[tuple[int, str]]]]] = defaultdict(list)
    kept = set[pytest.Item]()
    for item in items:
        values = getattr(getattr(item, "callspec", None), "_idlist", ())
        if values and "spark" in getattr(item, "fixturenames", ()):
            cases[item.nodeid.partition("[")[0]].append((item, set(enumerate(values))))
        else:
            kept.add(item)
    for combinations in cases.values():
        seen, covering = set[tuple[int, str]](), list[pytest.Item]()
        for item, values in sorted(combinations, key=lambda case: zlib.crc32(case[0].nodeid.encode())):
            if not values <= seen:
                seen |= values
                covering.append(item)
        kept.update(covering[: max(_LEAST, math.ceil(len(covering) / _ONE_IN))])
    return kept
