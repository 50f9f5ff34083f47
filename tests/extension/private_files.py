"""The files of this package, and their permissions."""

from __future__ import annotations

import re
import stat
from pathlib import Path

_OURS = re.compile(
    r"(^|/)sparkext(-[^/]*)?(/|$)|\.(build|lock|part|report|sorted)$|(^|/)(?!shuffle_)[^/]+\.index$"  # not Spark's
)
"""Files of this package: everything in its folders, and the files that workers write next to Spark's broadcasts."""


def open_to_others(folder: Path) -> tuple[int, dict[str, str]]:
    """Return the number of this package's files below a folder, and the mode of each path that is not private."""
    ours = [path for path in folder.rglob("*") if _OURS.search(str(path.relative_to(folder)))]
    wrong = {}
    for path in ours:
        status = path.lstat()
        wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o600
        if stat.S_IMODE(status.st_mode) != wanted:
            wrong[str(path.relative_to(folder))] = oct(status.st_mode)
    return sum(path.is_file() for path in ours), wrong
