"""Modules that may unpickle: content of files is data, and is never executed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
READING = {"load", "loads", "Unpickler", "open"}
ALLOWED = {
    "sparkext/predicates/theta_condition.py": "the predicate of theta_join: code that the driver sends, as for any UDF",
    "sparkext/streaming/state/user_states.py": "states that a user has asked to be pickled (pickle_state=True)",
}


def unpickles(source: str) -> bool:
    """Return whether a module can unpickle.

    It then names a function of a module for pickles that reads them, or such an option of NumPy or pandas.
    """
    tree = ast.parse(source)
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.asname or one.name for one in node.names if one.name.split(".")[-1] in UNPICKLERS}
        elif isinstance(node, ast.ImportFrom):
            parts = {*(node.module or "").split(".")}
            if parts & UNPICKLERS and {one.name for one in node.names} & {*READING, "*"}:
                return True
            names |= {one.asname or one.name for one in node.names if one.name in UNPICKLERS}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in READING and ast.unparse(node.value) in names:
            return True
        if isinstance(node, ast.Attribute) and node.attr == "read_pickle":
            return True
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            return True
    return False


def test_no_other_module_unpickles() -> None:
    sources = [path for folder in ("sparkext", "kernels", "plans") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in sources if unpickles(path.read_text(encoding="utf-8"))}
    assert len(sources) > 200 and found == {*ALLOWED}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pickle\npickle.loads(b'')", True),
        ("import pickle as p\nload = p.load", True),
        ("def f():\n    from pyspark import cloudpickle\n    return cloudpickle.loads(b'')", True),
        ("import pyspark.cloudpickle\npyspark.cloudpickle.loads(b'')", True),
        ("from pickle import loads", True),
        ("from pyspark.cloudpickle import *", True),
        ("import marshal\nmarshal.load(file)", True),
        ("import shelve\nshelve.open(path)", True),
        ("import numpy as np\nnp.load(path, allow_pickle=True)", True),
        ("import pandas as pd\npd.read_pickle(path)", True),
        ("import pickle\npickle.dumps(1)", False),
        ("from pyspark import cloudpickle\ncloudpickle.dumps(1)", False),
        ("import json\njson.loads('1')", False),
    ],
)
def test_the_rule_sees_through(source: str, expected: bool) -> None:
    assert unpickles(source) == expected
