"""Drawings and plots are embedded in pages: they do not style anything else, and follow the page's colours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.tools import site_hooks

DOCS = Path(__file__).parents[1] / "docs"
FILES = sorted([*DOCS.glob("drawings/*.svg"), *DOCS.glob("plots/*.svg")])
_RULE = re.compile(r"([^{}]+)\{[^{}]*\}")


def selectors(svg: str) -> list[str]:
    """Return the selectors of all style sheets, including those within @media."""
    styles = "".join(re.findall(r"<style[^>]*>(.*?)</style>", svg, re.DOTALL))
    rules = _RULE.findall(re.sub(r"@media[^{]*\{((?:[^{}]*\{[^{}]*\})*[^{}]*)\}", r"\1", styles))
    return [selector.strip() for rule in rules for selector in rule.split(",")]


def test_selectors_are_found() -> None:
    svg = "<style>text { a: b } .x .y, #z { } @media (w) { rect { } .x:root { } }</style><style type='t'>*{ }</style>"
    assert selectors(svg) == ["text", ".x .y", "#z", "rect", ".x:root", "*"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_drawing_styles_nothing_but_itself(path: Path) -> None:
    svg = path.read_text(encoding="utf-8")
    [own] = re.findall(r'<svg [^>]*class="(sparkext-[a-z]+)"', svg)
    found = selectors(svg)
    assert found, path
    page_scheme = r'(\[data-md-color-scheme="[a-z]+"\] )?'
    assert not [selector for selector in found if not re.match(rf"{page_scheme}\.{own}(?![\w-])", selector)]
    assert "prefers-color-scheme: dark" in svg


def test_names_in_drawings_of_one_page_are_unique() -> None:
    images = "".join(f'<img alt="{path.stem}" src="{path.parent.name}/{path.name}" />' for path in FILES)
    page = site_hooks.on_page_content(images, config={"docs_dir": DOCS})
    names = re.findall(r'\bid="([^"]+)"', page)
    assert page.count("<svg ") == len(FILES) and "<img" not in page
    assert len(names) == len({*names})
    assert {*re.findall(r'(?:url\(|href=")#([^")]+)', page)} <= {*names}


def test_the_scheme_of_the_page_chooses_a_picture() -> None:
    text = (DOCS / "tuning.md").read_text(encoding="utf-8")
    page = site_hooks.on_page_content(text, config={"docs_dir": DOCS})
    assert 'src="report.png#only-light"' in page and 'src="report-dark.png#only-dark"' in page
    assert "<picture" not in page and "prefers-color-scheme" not in page


@pytest.mark.parametrize("address", ["", "https://example.org/"])
def test_a_site_without_an_address_has_no_map(address: str, tmp_path: Path) -> None:
    (tmp_path / "sitemap.xml").touch()
    site_hooks.on_post_build(config={"site_dir": str(tmp_path), "site_url": address})
    assert (tmp_path / "sitemap.xml").exists() == bool(address)
