"""The folder of compiled kernels if neither the package nor the user's cache folder is writable."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkext.kernels.runtime.jit import JIT_ENABLED
from tests.support.read_only import read_only_install, restricted_python

pytestmark = pytest.mark.skipif(not JIT_ENABLED, reason="nothing is compiled")

HASH = """
import numpy as np
from sparkext.kernels.keys import hashing
hashing.hash_words(np.arange(3))
[hits] = {*hashing._hash_words.stats.cache_hits.values()} or {0}
print(hashing.__file__, hashing._hash_words.stats.cache_path, hits)
"""


def run(source: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # Not in the checkout, whose package would be found first.
    command = [*restricted_python(), "-c", source]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=environment["TMPDIR"])


def test_compiled_kernels_are_shared_in_a_private_folder(tmp_path: Path) -> None:
    environment = read_only_install(tmp_path)
    private = Path(environment["TMPDIR"]) / f"sparkext-{os.geteuid()}" / "kernels"
    for hits in ("0", "1"):
        ran = run(HASH, environment)
        assert ran.returncode == 0, ran.stderr
        source, cache, loaded = ran.stdout.split()
        assert source.startswith(environment["PYTHONPATH"])
        assert Path(cache).parent == private and loaded == hits
    assert {path.stat().st_mode & 0o777 for path in (private, private.parent)} == {0o700}


def test_without_any_folder_the_reason_is_named(tmp_path: Path) -> None:
    environment = read_only_install(tmp_path)
    trap = Path(environment["TMPDIR"]) / f"sparkext-{os.geteuid()}"
    trap.touch()
    ran = run("from sparkext.kernels.runtime.code_cache import check_code_cache; check_code_cache()", environment)
    *_, error = ran.stderr.splitlines()
    assert ran.returncode == 1 and "no folder to cache compiled kernels in" in error
    assert str(trap) in error and "NUMBA_CACHE_DIR" in error
    (tmp_path / "chosen").mkdir()
    ran = run(HASH, {**environment, "NUMBA_CACHE_DIR": str(tmp_path / "chosen")})
    assert str(tmp_path / "chosen") in ran.stdout, ran.stderr
