"""Waits and deadlines are measured by clocks that never jump: the wall clock only dates files and reports."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATES = {
    "sparkext/streaming/cql/code/modules.py": 1,  # compared with a file's modification time
    "sparkext/engine/pipeline.py": 2,  # shown in reports
}
"""How often each module reads the wall clock: only for dates."""

_WALL_CLOCK = re.compile(r"currentTimeMillis|Instant\.now|DateTime\.now|time\.time(_ns)?\(|datetime\.now|utcnow")


def test_no_duration_is_measured_by_the_wall_clock() -> None:
    sources = [
        path for folder in ("sparkext", "kernels", "plans") for path in (ROOT / folder).rglob("*") if path.is_file()
    ]
    readings = {
        str(path.relative_to(ROOT)): count
        for path in sources
        if path.suffix in (".py", ".scala") and (count := len(_WALL_CLOCK.findall(path.read_text())))
    }
    assert readings == DATES
