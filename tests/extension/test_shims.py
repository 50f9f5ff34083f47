"""The sources for all Spark minors have the same files and members, although only one minor is compiled here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sparkext
from sparkext.spark.jar import SPARK_MINORS, list_sources

SOURCES = Path(sparkext.__file__).parent / "jvm"
LAYERS = [f"spark-{minor}+" for minor in SPARK_MINORS]


def members(source: Path) -> list[str]:
    """Return the members and classes of a file with parameters and types, except overrides of Spark's members."""
    text = source.read_text()
    found = re.findall(r"^  (type \w+|(?:def|val) .*?) =(?:\s|$)", text, re.MULTILINE | re.DOTALL)
    found += re.findall(r"^((?:trait|object) \w+|(?:abstract )?class .*?\))\s", text, re.MULTILINE | re.DOTALL)
    return sorted(re.sub(r"\s+", " ", member) for member in found)


def test_every_layer_belongs_to_a_minor() -> None:
    assert sorted(folder.name for folder in SOURCES.iterdir()) == ["common", *LAYERS]


def test_every_minor_has_the_files_of_the_oldest() -> None:
    """A later layer may add files that its other files use."""
    oldest = {path.name for path in (SOURCES / LAYERS[0]).iterdir()}
    for minor in SPARK_MINORS:
        names = [path.name for path in list_sources(minor)]
        assert len({*names}) == len(names)
        assert oldest <= {*names}


@pytest.mark.parametrize("layer", LAYERS[1:])
def test_a_file_replaces_another_with_the_same_members(layer: str) -> None:
    for path in (SOURCES / layer).iterdir():
        older = [SOURCES / other / path.name for other in LAYERS[: LAYERS.index(layer)]]
        for other in filter(Path.exists, older):
            assert members(other) == members(path) != []
            assert other.read_text() != path.read_text()


def test_the_newest_file_that_applies_is_compiled() -> None:
    assert [path.parent.name for path in list_sources("4.2") if path.name == "StreamingShim.scala"] == ["spark-4.0+"]
    assert [path.parent.name for path in list_sources("4.3") if path.name == "StreamingShim.scala"] == ["spark-4.3+"]
