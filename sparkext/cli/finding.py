"""The finding of a check of `doctor`, and functions that checks share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from sparkext.cli.local_session import summarise_error


class Status(Enum):
    """The status of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """The finding of one check, with a remedy (`advice`) if it is not OK. `more` are lines of underlying facts."""

    status: Status
    title: str
    detail: str
    advice: str = ""
    more: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return status, title, detail and advice on one line, followed by the lines of `more`."""
        line = f"{self.status.value:<4}  {self.title:<14}  {self.detail}"
        lines = [f"{line} -> {self.advice}" if self.advice else line, *self.more]
        return f"\n{'':<22}".join(lines)


def run_guarded(title: str, check: Callable[[], Finding]) -> Finding:
    """Return the finding of a check. If the check raises, it has failed, and the error is the detail."""
    try:
        return check()
    except Exception as error:
        return Finding(Status.FAIL, title, summarise_error(error))


def parse_release(version: str) -> tuple[int, ...]:
    """Return `(4, 3)` for `4.3.0`."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def format_release(version: tuple[int, ...]) -> str:
    """Return `4.3` for `(4, 3)`."""
    return ".".join(map(str, version))
