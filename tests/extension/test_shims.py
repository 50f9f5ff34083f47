"""The shims of all Spark minors have the same members, although only that of the installed PySpark is compiled here."""

from __future__ import annotations

import re
from pathlib import Path

import sparkext
from sparkext.spark.jar import list_supported_minors

SOURCES = Path(sparkext.__file__).parent / "jvm"


def members(minor: str) -> list[str]:
    """Return the members and classes of a shim with parameters and types, except overrides of Spark's members."""
    source = (SOURCES / f"spark-{minor}" / "SparkShim.scala").read_text()
    found = re.findall(r"^  (type \w+|(?:def|val) .*?) =(?:\s|$)", source, re.MULTILINE | re.DOTALL)
    found += re.findall(r"^((?:abstract )?class .*?\))\s+extends", source, re.MULTILINE | re.DOTALL)
    return sorted(re.sub(r"\s+", " ", member) for member in found)


def test_every_shim_has_the_same_members() -> None:
    minors = list_supported_minors()
    assert "4.3" in minors
    offered = {minor: members(minor) for minor in minors}
    assert any(member.startswith("class PythonRunner(") for member in offered["4.3"])
    assert all(offered[minor] == offered["4.3"] for minor in minors), offered


def test_a_version_has_nothing_but_a_shim() -> None:
    """Code that all versions share belongs in `common`."""
    for minor in list_supported_minors():
        assert [file.name for file in (SOURCES / f"spark-{minor}").iterdir()] == ["SparkShim.scala"]
