"""The links of the front page exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


@pytest.mark.parametrize("page", PAGES)
def test_its_links_lead_to_files(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert targets, page
    assert not [target for target in local if not (ROOT / target).is_file()]


def test_the_front_page_names_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md", "changelog.md", "reference.md"}
    assert not {page for page in pages if f"docs/{page}" not in readme}


@pytest.mark.parametrize("page", PAGES[:2])
def test_its_commands_are_there(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"^make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
    assert len(named) >= 3 and named <= targets
