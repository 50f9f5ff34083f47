"""How the budgets of a join followed the memory that was free, from the trace of `controller.follow`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.theme import Theme

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = "controller.follow"
_MIB = 2**20


def budget_plot(line: Mapping[str, Any], theme: Theme) -> Figure:
    """Two panels over one time: the headroom, and the budget of every operator."""
    import matplotlib.pyplot as plt

    figure, (above, below) = plt.subplots(
        2, 1, figsize=(9.6, 5.2), sharex=True, layout="constrained", height_ratios=(1, 1.3)
    )
    decisions = line["decisions"]
    start = decisions[0][0]
    times = [time - start for time, *_ in decisions]
    above.fill_between(times, [(headroom or 0) / _MIB for _, _, headroom, *_ in decisions], color=theme.win, alpha=0.25)
    above.plot(times, [(headroom or 0) / _MIB for _, _, headroom, *_ in decisions], color=theme.win)
    above.set_ylabel("free for the join, MiB")
    above.set_ylim(0)
    for operator in sorted({operator for _, operator, *_ in decisions}):
        own = [(time - start, budget) for time, of, _, budget, _ in decisions if of == operator]
        below.step(*zip(*own, strict=True), where="post", label=f"operator {operator}")
    below.set_yscale("log")
    below.set_ylabel("budget, rows")
    below.set_xlabel("seconds")
    below.legend(fontsize=8.5, ncols=4)
    return figure
