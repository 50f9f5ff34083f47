"""Modules that `code` writes: any number of processes store each once; the least recently loaded ones are removed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numba
import pytest

from sparkext.storage.last_used import LruCache
from sparkext.streaming.cql.code import modules

SOURCE = "from sparkext.kernels.runtime.jit import kernel\n@kernel\ndef plus(a):\n    return a + {}\n"
SAME_ID = """
import os, sys, time
from pathlib import Path
os.getpid = lambda: 4242  # as in two containers
from sparkext.streaming.cql.code.modules import load_module
beside, other = map(Path, sys.argv[1:])
end = time.monotonic() + 60
for number in range(100):
    beside.write_text(str(number))
    while int(other.read_text() or -1) < number:  # both store each module at the same time
        assert time.monotonic() < end, "the other process has failed"
    assert load_module(f"value = {number}\\n" + "# long\\n" * 2_000).value == number
"""


@pytest.fixture(params=["beside the source", "in NUMBA_CACHE_DIR"])
def cache(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of modules, for both locations of machine code."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(modules, "_modules", LruCache(modules.MOST_MODULES))  # as in a new process
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "numba") if "NUMBA" in request.param else "")
    return tmp_path / ("numba" if "NUMBA" in request.param else "sparkext") / "cql"


def stored(number: int, seconds_ago: int) -> Path:
    """Store and compile a module; return its source."""
    module = modules.load_module(SOURCE.format(number))
    assert module.plus(1) == 1 + number
    path = Path(module.plus.py_func.__code__.co_filename)
    os.utime(path.parent, (time.time() - seconds_ago,) * 2)
    return path


def test_processes_of_equal_id_store_modules_at_the_same_time(tmp_path: Path) -> None:
    turns = tmp_path / "one", tmp_path / "two"
    for turn in turns:
        turn.touch()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "NUMBA_CACHE_DIR": ""}
    command = [sys.executable, "-c", SAME_ID]
    running = [
        subprocess.Popen([*command, str(one), str(two)], env=environment, stderr=subprocess.PIPE, text=True)
        for one, two in (turns, turns[::-1])
    ]
    assert [process.communicate()[1] for process in running] == ["", ""]
    found = [*(tmp_path / "sparkext" / "cql").rglob("*")]
    assert sum(path.suffix == ".py" for path in found) == 100
    assert all(path.suffix == ".py" or path.is_dir() for path in found), "no temporary file is left"


def test_only_the_user_can_read_and_write_modules(cache: Path) -> None:
    path = stored(1_000, 0)
    assert path.is_relative_to(cache)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent, cache)] == [0o600, 0o700, 0o700]


def test_a_folder_that_others_can_replace_is_not_used(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))
    (tmp_path / "local").mkdir()
    (tmp_path / "elsewhere").mkdir()
    cache.parent.mkdir(exist_ok=True)
    cache.symlink_to(tmp_path / "elsewhere")
    assert not stored(2_000, 0).resolve().is_relative_to(tmp_path / "elsewhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_without_a_home_has_modules() -> None:
    script = (
        "import os; from sparkext.streaming.cql.code import modules;"
        " os.setuid(54321); print(modules.load_module('x = 5').x)"
    )
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    with TemporaryDirectory() as local:
        os.chown(local, 54321, 54321)
        environment |= {"SPARK_LOCAL_DIRS": local, "NUMBA_CACHE_DIR": ""}
        command = [sys.executable, "-c", script]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("5\n", "")


def test_the_least_recently_loaded_modules_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [stored(number, ago) for number, ago in ((1, 9_000), (2, 8_000), (3, 7_000), (4, 10))]
    machine_code = {path: [*cache.parent.rglob(f"{path.stem}*.nbc")] for path in paths}
    assert all(machine_code.values())
    monkeypatch.setattr(modules, "_modules", LruCache(modules.MOST_MODULES))
    modules.load_module(SOURCE.format(1))  # another process loads it again
    of_one = modules._measure_folders(modules._list_module_folders(paths[0].parent))
    monkeypatch.setattr(modules, "MOST_BYTES", 3 * of_one + of_one // 2)
    modules.load_module("x = 1")
    assert [path.exists() for path in paths] == [True, False, True, True]
    monkeypatch.setattr(modules, "MOST_BYTES", 0)
    modules.load_module("x = 2")
    assert [path.exists() for path in paths] == [True, False, False, True], "modules loaded just now stay"
    for path in paths:
        assert all(code.exists() == path.exists() for code in machine_code[path])


def test_a_process_keeps_a_limited_number_of_modules(cache: Path) -> None:
    names = [modules.load_module(f"x = {number}").__name__ for number in range(2 * modules.MOST_MODULES)]
    assert [name for name in names if name in sys.modules] == names[-modules.MOST_MODULES :]
    assert len([name for name in sys.modules if name.startswith("sparkext_cql_")]) == modules.MOST_MODULES
