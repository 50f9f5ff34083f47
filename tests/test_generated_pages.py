"""Generated parts of pages agree with the code; code and the registry of conditions have the same names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sparkext.errors
from docs.tools import conditions, generate
from sparkext.config import REGISTRY
from sparkext.errors import InvalidCallError, SparkExtError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.mark.parametrize("page", generate.pages(), ids=lambda page: page.name)
def test_pages_are_up_to_date(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == generate.rendered(page), "run `python -m docs.tools.generate`"


def test_every_option_is_there() -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    assert not [key.name for key in REGISTRY if (f"| `{key.name}` |" in page) == key.is_internal]


def test_every_reason_of_the_extension_is_registered() -> None:
    used = {
        name
        for path in (ROOT / "sparkext" / "jvm").rglob("*.scala")
        for name in re.findall(r'\bReason\(\s*"(\w+)"', path.read_text(encoding="utf-8"))
    }
    registered = [name for group in conditions.REGISTRY["reasons"] for name in group["reasons"]]
    assert used == {*registered} and len(used) == len(registered)


def test_every_error_class_has_a_remedy() -> None:
    found = {
        value.getCondition()
        for value in vars(sparkext.errors).values()
        if isinstance(value, type) and issubclass(value, SparkExtError)
    }
    bases = {SparkExtError.getCondition(), InvalidCallError.getCondition()}
    assert found - bases == {f"SPARKEXT.{name}" for name in conditions.REGISTRY["errors"]}
    assert "SPARKEXT.BUILD_SIDE_TOO_LARGE" in found
