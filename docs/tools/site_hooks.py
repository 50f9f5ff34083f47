"""Hooks of mkdocs: pictures follow the colour scheme that a reader of the site has chosen, and no site map is empty.

Pages refer to drawings and plots as images, which also work in the repository. Images follow the scheme of the system,
not the site's scheme. Therefore drawings are inserted into the page, and of a pair of pictures for the light and the
dark scheme, the site shows the right one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_IMAGE = re.compile(r'<img alt="([^"]*)" src="(?:\.\./)*((?:drawings|plots)/([a-z-]+)\.svg)"\s*/?>')
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)
_FIGURE = '<span class="figure" data-search-exclude tabindex="0">{}</span>'


def on_page_content(html: str, *, config: Any, **_: object) -> str:
    """Insert the drawings to which a page refers, and mark pictures with their scheme."""

    def drawing(image: re.Match[str]) -> str:
        svg = (Path(config["docs_dir"]) / image[2]).read_text(encoding="utf-8")
        svg = svg[svg.index("<svg") :]
        width = float(svg.partition('viewBox="')[2].split()[2])
        svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{image[3]}-", svg)  # unique in the page
        look = f'role="img" aria-label="{image[1]}" style="--width: {width:g}px"'
        return _FIGURE.format(re.sub(r"<svg ", f"<svg {look} ", svg.replace(' role="img"', "", 1), count=1))

    def picture(found: re.Match[str]) -> str:
        dark, alt, light = found.groups()
        return _FIGURE.format(f'<img alt="{alt}" src="{light}#only-light"><img alt="{alt}" src="{dark}#only-dark">')

    return _PICTURE.sub(picture, _IMAGE.sub(drawing, html))


def on_post_build(*, config: Any, **_: object) -> None:
    """Remove the site map if no address is set (`SITE_URL`), as it would not list any page."""
    if not config["site_url"]:
        for name in ("sitemap.xml", "sitemap.xml.gz"):
            (Path(config["site_dir"]) / name).unlink(missing_ok=True)
