"""The gate's own rules: the combinations that run, and the functions that have to pass."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest

from tests.support.combinations import left_out
from tests.support.outcomes import best_of, not_passed

ROOT = Path(__file__).parents[1]

REDUCED = """
import pytest

@pytest.mark.reduced("values", reason="slow")
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("c", range(2))
def test_values(a, b, c): pass

@pytest.mark.reduced("pairs", reason="slow")
@pytest.mark.parametrize("a", range(3))
@pytest.mark.parametrize("b", range(3))
@pytest.mark.parametrize("c", range(2))
def test_pairs(a, b, c): pass

@pytest.mark.parametrize("a", [0, pytest.param(1, marks=pytest.mark.whole(reason="slow"))])
def test_one(a): pass

@pytest.mark.parametrize("a", range(3))
def test_all(a): pass

def test_without_parameters(): pass
"""


def running(pytester: pytest.Pytester, source: str, *named: str) -> dict[str, list[tuple[str, ...]]]:
    """Return the combinations that run by default, by function."""
    items = pytester.getitems(source)
    unwanted = left_out(items, named)
    found: dict[str, list[tuple[str, ...]]] = {}
    for item in items:
        if item not in unwanted:
            name, _, values = item.name.partition("[")
            found.setdefault(name, []).append(tuple(values.rstrip("]").split("-")))
    return found


def test_each_value_and_each_pair_runs(pytester: pytest.Pytester) -> None:
    found = running(pytester, REDUCED)
    every = list(itertools.product("01", "012", "012"))
    for name, size in (("test_values", 1), ("test_pairs", 2)):
        needed = {group for case in every for group in itertools.combinations(enumerate(case), size)}
        chosen = {group for case in found[name] for group in itertools.combinations(enumerate(case), size)}
        assert chosen == needed and len(found[name]) < len(every), name
    assert len(found["test_values"]) < len(found["test_pairs"])
    assert found["test_one"] == [("0",)]
    assert len(found["test_all"]) == 3 and len(found["test_without_parameters"]) == 1


def test_a_named_function_runs_every_combination(pytester: pytest.Pytester) -> None:
    found = running(pytester, REDUCED, "test_a_named_function_runs_every_combination.py::test_values")
    assert len(found["test_values"]) == 18 and len(found["test_pairs"]) < 18


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import pytest\n@pytest.mark.whole(reason='slow')\ndef test_it(): pass", "every function has to run"),
        ("import pytest\npytestmark = pytest.mark.whole(reason='slow')\ndef test_it(): pass", "every function has to"),
        ("import pytest\n@pytest.mark.reduced('values')\ndef test_it(): pass", "reason"),
        ("import pytest\n@pytest.mark.reduced('some', reason='slow')\ndef test_it(): pass", "reduced"),
    ],
    ids=["whole function", "whole module", "no reason", "no such reduction"],
)
def test_no_mark_leaves_out_a_function(pytester: pytest.Pytester, source: str, message: str) -> None:
    with pytest.raises(pytest.UsageError, match=message):
        left_out(pytester.getitems(source), [])


def test_outcomes_of_a_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passed, failed and skipped functions, and a module that is skipped as a whole, in two processes."""
    pytester.makepyfile(
        test_it="""
            import pytest
            @pytest.mark.parametrize("a", [0, 1])
            def test_passes_once(a):
                if a: pytest.skip()
            def test_skipped(): pytest.skip()
            def test_failed(): assert False
            @pytest.fixture
            def broken():
                yield
                assert False
            def test_teardown(broken): pass
            """,
        test_module="import pytest; pytest.importorskip('no_such_module')\ndef test_never(): pass",
    )
    pytester.makeconftest((ROOT / "tests" / "conftest.py").read_text())
    monkeypatch.setenv("SPARKEXT_TEST_OUTCOMES", str(pytester.path / "outcomes"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.runpytest_subprocess("-q", "-n", "2")
    checked = pytester.run(sys.executable, "-m", "tests.support.outcomes")
    assert checked.ret == 1
    assert checked.errlines == [
        "Every test function has to pass in some run. These did not:",
        "test_it.py::test_failed: failed",
        "test_it.py::test_skipped: skipped",
        "test_it.py::test_teardown: failed",
        "test_module.py: skipped",
    ]


def test_a_function_that_passes_in_one_of_two_runs_has_passed() -> None:
    best = best_of([("a[1]", "skipped"), ("a[2]", "passed"), ("b", "skipped"), ("c", "failed")])
    assert best == {"a": "passed", "b": "skipped", "c": "failed"}
    assert not_passed(best, {}) == ["b: skipped", "c: failed"]
    assert not_passed(best, {"a": "old", "b": "needs another machine", "c": "?"}) == ["a: allowed not to pass, but did"]
