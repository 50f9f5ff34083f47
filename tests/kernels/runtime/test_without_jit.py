"""The kernel tests with the JIT switched off: plain Python must agree, and coverage tools can measure it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import FunctionType
from xml.etree import ElementTree

import pytest
from numba.core.dispatcher import Dispatcher

from sparkext.kernels.columns import gather
from sparkext.kernels.indexes import hash_index, matches, ordered_index
from sparkext.kernels.runtime import intrinsics
from sparkext.kernels.runtime.jit import JIT_ENABLED
from sparkext.kernels.sort import radix_sort

TESTS = Path(__file__).parents[2]
# Tests in separate processes gain nothing from this, and tests of large inputs would be too slow.
LEFT_OUT = "not outside and not sizes_around and not null_rates and not gibibytes and not what_is_chosen"
FILES = [
    "expressions/test_expression_code",
    "streaming/cql/test_engine",
    "streaming/cql/test_sections",
    "kernels/groups/test_accumulators",
    "kernels/arena/test_arena",
    "kernels/keys/test_bytes_equal",
    "kernels/values/test_calendar",
    "kernels/values/test_characters",
    "kernels/shuffle/test_checksum",
    "kernels/keys/test_decimal_words",
    "kernels/columns/test_gather",
    "kernels/groups/test_group_table",
    "kernels/keys/test_hashing",
    "kernels/indexes/test_indexes",
    "kernels/indexes/test_key_set",
    "kernels/keys/test_keys",
    "kernels/sort/test_merge_runs",
    "kernels/indexes/test_nearest",
    "kernels/indexes/test_nested_loop",
    "kernels/values/test_patterns",
    "kernels/indexes/test_probe",
    "kernels/sort/test_radix_sort",
    "kernels/indexes/test_range_index",
    "kernels/runtime/test_without_jit",
]


def test_kernels_are_what_the_switch_says() -> None:
    assert (os.environ.get("NUMBA_DISABLE_JIT", "0") == "0") == JIT_ENABLED
    wanted = Dispatcher if JIT_ENABLED else FunctionType
    kernels = [
        gather._gather_bytes,
        hash_index._lookup_words,
        matches._expand,
        ordered_index._merge_words,
        radix_sort._sort_pieces,
    ]
    assert [kernel for kernel in kernels if not isinstance(kernel, wanted)] == []
    assert isinstance(intrinsics.load_u64, FunctionType) != JIT_ENABLED


@pytest.mark.skipif(not JIT_ENABLED, reason="this is the run without the JIT")
def test_the_kernel_tests_pass_without_the_jit(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    report = tmp_path / "report.xml"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", LEFT_OUT, f"--junitxml={report}"),
            *(str(TESTS / f"{name}.py") for name in FILES),
        ],
        capture_output=True,
        text=True,
        cwd=request.config.rootpath,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    assert ran.returncode == 0, ran.stdout[-10_000:] + ran.stderr[-2_000:]
    passed = Counter(
        case.attrib["classname"].split(".")[-1]
        for case in ElementTree.parse(report).getroot().iter("testcase")
        if len(case) == 0
    )
    assert set(passed) == {Path(name).name for name in FILES}
    assert passed["test_without_jit"] == 1
    assert sum(passed.values()) > 500
