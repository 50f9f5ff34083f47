"""Single kernels on one morsel of 131,072 rows, in nanoseconds per row, measured by pyperf."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

from bench.harness import Bench, Case, step
from sparkext.wording import format_table

NOTES = """\
Measured: one call of a kernel on one morsel, or on 100 K build rows if the kernel builds an index. All data fit into
the cache. pyperf runs each kernel in several processes, one after another, and warms up in each, so the deviation
includes differences between processes. Keys are in random order."""


def cases() -> list[Case]:
    """Return the only case: all kernels in one table."""
    return [Case("micro.kernels", "encoding, building, probing, gathering, by pyperf", _run, scaled=False, threads=1)]


def _run(bench: Bench) -> None:
    import pyperf

    from bench.cases.kernels.micro_kernels import BUILD, MORSEL

    script = Path(__file__).with_name("micro_kernels.py")
    effort = ["--processes", str(bench.runs), "--values", "3", "--warmups", "1"]
    if bench.tiny:
        effort = ["--debug-single-value", "--worker"]  # one value per kernel, all in one process
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "micro.json"
        with step("pyperf"):
            subprocess.run(
                [sys.executable, str(script), "--quiet", "--output", str(output), *effort],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        suite = pyperf.BenchmarkSuite.load(str(output))
    table = []
    for benchmark in suite.get_benchmarks():
        name, seconds = benchmark.get_name(), list(benchmark.get_values())
        rows = BUILD if name.startswith("build") else MORSEL
        bench.record(contestant=f"sparkext, {name}", part=name, ours=True, rows=rows, seconds=seconds)
        nanoseconds = [value / rows * 1e9 for value in seconds]
        spread = stdev(nanoseconds) if len(nanoseconds) > 1 else 0.0
        table.append([name, f"{mean(nanoseconds):.2f}", f"{spread:.2f}", str(len(seconds))])
    print(f"\n{format_table(['kernel', 'ns a row', 'deviation', 'values'], table)}\n")
