"""A hook of mkdocs: drawings become part of the page, where they have its colours.

A page names a drawing as an image, which is what a reader of the repository sees; as an image it knows nothing of the
colour scheme that the reader of the site has chosen.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*(drawings/[a-z-]+\.svg)"\s*/?>')


def on_page_content(html: str, *, config: Any, **_: object) -> str:
    """Put the drawings that a page names into it."""

    def drawing(image: re.Match[str]) -> str:
        svg = (Path(config["docs_dir"]) / image[2]).read_text(encoding="utf-8")
        return svg.replace("<svg ", f'<svg role="img" aria-label="{image[1]}" ', 1)

    return _IMAGE.sub(drawing, html)
