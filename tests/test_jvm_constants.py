"""Definitions that both languages share: tables that are shipped, and names that each language lists."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from sparkext.jvm_constants import SPARK_TYPES
from sparkext.parquet.rules import READ_TYPES
from sparkext.plans.expressions.evaluators import EVALUATORS
from sparkext.plans.expressions.expression import ARITY, COMPARISONS, LEAVES, VARIADIC
from sparkext.plans.expressions.key_types import KEY_TYPE_NAMES
from sparkext.spark.jar import locate_jar

SCALA = Path(__file__).parents[1] / "sparkext" / "jvm" / "common" / "expressions"
TABLES = {
    name
    for path in SCALA.parent.rglob("*.scala")
    for name in re.findall(r'\bShared(?:\.\w+)?(?:\[[\w\[\], ]+\])?\("(\w+)"\)', path.read_text())
}
FIELDS = {"args", "type", "list", "source", "text", "checked", "op"}


def test_types_are_those_of_plans() -> None:
    assert {*SPARK_TYPES.values(), "decimal"} == set(KEY_TYPE_NAMES)
    assert {*READ_TYPES, *(name for evaluator in EVALUATORS for name in evaluator.types)} <= set(KEY_TYPE_NAMES)


@pytest.mark.parametrize(
    ("file", "operators"),
    [
        ("WorkerExpression", {*ARITY, *VARIADIC, *LEAVES} - {"<", "<=", ">", ">="}),
        ("Comparison", {*COMPARISONS}),
    ],
)
def test_scala_writes_the_operators_that_python_reads(file: str, operators: set[str]) -> None:
    """Scala maps Catalyst's classes to the operators, so it contains their names."""
    source = re.sub(r'Reason\("\w+"', "", (SCALA / f"{file}.scala").read_text(encoding="utf-8"))
    words = set(re.findall(r'(?<![s"])"([^" \n$]+)"', source))
    assert words - FIELDS - {*KEY_TYPE_NAMES} - TABLES == operators


def test_every_table_that_scala_reads_travels() -> None:
    with zipfile.ZipFile(locate_jar()) as jar:
        assert set(json.loads(jar.read("io/sparkext/shared.json"))) == TABLES | {"sources"}
