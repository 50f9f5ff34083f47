"""A process retains freed memory, and returns it if memory is scarce."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from sparkext.memory import freed

_SCRIPT = """
import json, sys
from types import SimpleNamespace
from sparkext.memory import freed
from sparkext.memory import probes

if sys.argv[1] == "kept":
    freed.keep_freed_memory()
import pyarrow as pa

def resident():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[1]) * 4096

def allocate():
    buffers = [pa.allocate_buffer(64 << 20) for _ in range(4)]
    for buffer in buffers:
        memoryview(buffer).cast("B")[::4096] = bytes(len(memoryview(buffer).cast("B")[::4096]))

allocate()
after = resident()
for headroom in (1 << 50, 1 << 20):
    read = lambda: probes.Headroom(headroom, "available")
    freed.process_probe = lambda: SimpleNamespace(headroom=read, expire=lambda: None)
    freed.release_unless_ample()
    after = [*(after if isinstance(after, list) else [after]), resident()]
print(json.dumps({"pool": pa.default_memory_pool().backend_name, "resident": after}))
"""


@pytest.mark.parametrize("kept", [True, False])
def test_freed_memory_stays_until_it_is_scarce(kept: bool) -> None:
    command = [sys.executable, "-c", _SCRIPT, "kept" if kept else "not"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    if told["pool"] != "mimalloc":
        pytest.skip(f"Arrow allocates by {told['pool']} here, which is not told to keep anything")
    freed, ample, scarce = told["resident"]
    if kept:
        assert min(freed, ample) > 256 << 20
    assert scarce < 200 << 20


def test_memory_is_reclaimed_not_more_than_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(freed, "_reclaimed", 0.0)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert [freed.reclaim(), freed.reclaim()] == [True, False]
    now[0] += 0.2
    assert freed.reclaim()
