"""How many modules a row passes through, and the lists of them on the page on architecture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import hops


@pytest.fixture(autouse=True)
def local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


def test_a_probe_batch_makes_few_hops() -> None:
    found = hops.trace_probe_batch()
    assert 5 < len(found) <= 20, "\n".join(map(str, found))
    assert not [hop for hop in found if hop.is_climb(hops.read_layers())]


def test_a_row_of_a_stream_join_climbs_at_most_twice() -> None:
    found = hops.trace_stream_rows()
    climbs = [hop for hop in found if hop.is_climb(hops.read_layers())]
    assert len(found) > 20 and len(climbs) <= 2, "\n".join(map(str, climbs))


def test_the_page_has_these_lists() -> None:
    """In any order, which depends on the threads."""
    page = hops.PAGE.read_text(encoding="utf-8")
    listed, found = (set(re.findall(r"`[\w.]+` → `\S+`", text)) for text in (page, hops.updated(page)))
    assert listed == found, "run `python -m tests.support.hops`"
