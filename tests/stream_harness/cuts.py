"""How a query reads its rows: batches, runs, the location of its checkpoint, and failures."""

from __future__ import annotations

import random
from dataclasses import dataclass

CHECKPOINTS = (
    *("checkpoint",) * 4,
    *(
        "orders #1",
        "a?b=c",
        "100%",
        "%20",
        "a%20b%23",
        "with space",
        "ünï 名",
        "a+b",
        "a&b;c",
        "[x]",
        "{y}",
        "a,b",
        "~t",
    ),
    *("it's", 'quote"d', "#", "%2F", "%%", "a=b/c d", "tab\tbed", "semi;colon", "back\\slash", "star*"),
)


@dataclass(frozen=True)
class Run:
    """One start of the query: it reads `batches` batches with `partitions` partitions.

    `fails`: the sink fails `before` or `after` it has read the last batch, and the run ends there.
    """

    batches: int
    partitions: int
    fails: str = ""


def draw_runs(r: random.Random, batches: int) -> tuple[Run, ...]:
    """Split batches into runs with changing numbers of partitions."""
    runs = []
    while batches:
        count = r.randint(1, min(batches, 3)) if r.random() < 0.7 else batches
        partitions = r.choice((1, 1, 2, 2, 3, 4))
        fails = r.choice(("before", "after")) if r.random() < 0.12 else ""
        runs.append(Run(count, partitions, fails))
        batches -= count
    if runs[-1].fails:
        runs.append(Run(0, r.choice((1, 2, 3)), ""))
    return tuple(runs)
