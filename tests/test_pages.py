"""Pages show the package as it is: columns of reports, pictures, result files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.report.summary import named_files
from sparkext.reports.text import _HEADER

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


def test_reports_on_pages_have_the_columns_of_reports() -> None:
    headers = [
        line for page in PAGES for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("operator ")
    ]
    assert headers
    assert {tuple(re.split(r" {2,}", header.rstrip())) for header in headers} == {_HEADER}


def test_every_column_of_a_report_is_explained() -> None:
    page = (DOCS / "tuning.md").read_text(encoding="utf-8")
    section = page.partition("## Reading a report\n")[2].partition("\n#")[0]
    explained = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[2:]
    assert [name for names in explained for name in names.split(", ")] == list(_HEADER)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_are_there(page: Path) -> None:
    """Pictures in HTML; mkdocs checks the others."""
    text = page.read_text(encoding="utf-8")
    named = re.findall(r'(?:src|srcset)="([^"]+)"', text)
    assert not [name for name in named if not (page.parent / name).is_file()]


def test_every_picture_is_shown() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = [*DOCS.glob("*.png"), *DOCS.glob("plots/*")]
    assert pictures and not [path.name for path in pictures if path.name not in shown]


def test_the_commits_of_results_are_stated() -> None:
    """Each result file is listed with the commit and the time in its first line."""
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    for path in named_files(ROOT / "bench" / "results"):
        facts = json.loads(path.read_text(encoding="utf-8").partition("\n")[0])["facts"]
        [line] = re.findall(rf"^\|.*`{path.name}`.*$", page, re.MULTILINE)
        assert f"`{facts['commit']}`" in line
        assert facts["date"].split()[1] in line
