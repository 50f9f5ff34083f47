"""The README says what the program does."""

from __future__ import annotations

from pathlib import Path

from sparkext.config import REGISTRY, markdown_table

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_options_table_is_generated_from_the_registry() -> None:
    begin = README.index("<!-- options:")
    table = README[README.index("\n", begin) : README.index("<!-- end of options -->")].strip()
    assert table == markdown_table().strip(), "run `python -m sparkext options` and paste its output"
    assert all(key.name in table for key in REGISTRY)
