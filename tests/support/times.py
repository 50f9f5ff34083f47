"""Times as numbers."""

from __future__ import annotations

from datetime import datetime, timezone


def micros(time: datetime) -> int:
    """Return µs since 1970."""
    aware = time.replace(tzinfo=timezone.utc) if time.tzinfo is None else time
    passed = aware - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
