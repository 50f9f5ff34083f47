"""TPC-H tables as Parquet files, made by the `tpchgen-cli` executable and kept for the next run.

A data folder is either whole or absent. The tables of one scale factor are written to a hidden folder beside
their final place, which is renamed when the last table is complete; a lock file keeps two runs from making
the same tables at once, and tells the leftovers of a killed run from the work of a live one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparkext.errors import EnvironmentProblemError
from sparkext.reports.progress import in_notebook, on_terminal, progress

_ROWS = {
    "lineitem": 6_001_215,
    "orders": 1_500_000,
    "partsupp": 800_000,
    "part": 200_000,
    "customer": 150_000,
    "supplier": 10_000,
    "nation": 25,
    "region": 5,
}
"""At scale factor 1."""
_SOON_MADE = 0.1
TABLES = tuple(_ROWS)
DEFAULT_ROOT = Path(".data") / "tpch"

INSTALL_GENERATOR = 'pip install "tpchgen-cli>=3"'


def ensure_tables(scale_factor: float, root: Path = DEFAULT_ROOT) -> Path:
    """Return the folder that holds `<table>.parquet` for each of `TABLES`, generating it if need be.

    The folder is `root/sf<scale_factor>`; scale factor 1 is about 450 MB of Parquet. Raises
    `EnvironmentProblemError` when `tpchgen-cli` is missing or fails; nothing half-written is left then.
    """
    folder = root.absolute() / f"sf{scale_factor:g}"
    if _is_complete(folder):
        return folder
    generator = find_generator()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(folder.with_name(f".{folder.name}.lock")) as lock:
            if not _is_complete(folder):  # another run may have made it while this one waited for the lock
                _generate(generator, scale_factor, folder, lock)
    except OSError as error:
        raise EnvironmentProblemError(
            f"Cannot write TPC-H data to {folder}: {error}. Choose another folder with --data."
        ) from error
    return folder


def find_generator() -> Path:
    """Return the `tpchgen-cli` executable: the one installed beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "tpchgen-cli"
    if os.access(beside, os.X_OK):
        return beside
    on_path = shutil.which("tpchgen-cli")
    if on_path is None:
        raise EnvironmentProblemError(
            f"tpchgen-cli, which generates the TPC-H tables, is neither in {beside.parent} nor on PATH. "
            f"Install it: {INSTALL_GENERATOR}"
        )
    return Path(on_path)


def _is_complete(folder: Path) -> bool:
    return all((folder / f"{table}.parquet").is_file() for table in TABLES)


@contextmanager
def _exclusive(path: Path) -> Iterator[int]:
    """Hold the lock file `path`; yields its descriptor."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting: another run is generating data under {path.parent}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock.fileno()


def _generate(generator: Path, scale_factor: float, folder: Path, lock: int) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # we hold the lock: what lies here was left by a killed run
    _say(f"generating TPC-H tables, scale factor {scale_factor:g}, in {folder}")
    try:
        # On a terminal the generator draws its own progress bars; elsewhere it is silent, so we speak for it. Little
        # data take it less time than its start, which each table would wait for.
        if on_terminal() or scale_factor < _SOON_MADE:
            _run(generator, scale_factor, TABLES, partial, lock)
        else:
            _run_by_table(generator, scale_factor, partial, lock)
        shutil.rmtree(folder, ignore_errors=True)  # someone took a table out of it, or it would not be remade
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_by_table(generator: Path, scale_factor: float, partial: Path, lock: int) -> None:
    """Generate one table after the other, and tell of each: with a bar in a notebook, else in lines."""
    total = int(sum(_ROWS.values()) * scale_factor)
    with progress("generating TPC-H tables", "rows", total, shown=in_notebook()) as advance:
        for table in TABLES:
            started = time.perf_counter()
            size = _run(generator, scale_factor, (table,), partial, lock)
            advance(int(_ROWS[table] * scale_factor))
            if not in_notebook():
                _say(f"  {table:<8}  {size / 1e6:8,.1f} MB  {time.perf_counter() - started:5.1f} s")


def _run(generator: Path, scale_factor: float, tables: Sequence[str], partial: Path, lock: int) -> int:
    """Generate `tables` into `partial`; returns their size in bytes."""
    command = [str(generator), "parquet", "-s", f"{scale_factor:g}"]
    command += [f"--tables={','.join(tables)}", f"--output-dir={partial}"]
    # The child shares the lock: should this process be killed, the lock lasts until the orphan stops writing.
    ended = subprocess.run(command, pass_fds=[lock], check=False)
    if ended.returncode != 0:
        raise EnvironmentProblemError(
            f"tpchgen-cli {_how_it_ended(ended.returncode)} and nothing was kept. The command was: {' '.join(command)}"
        )
    files = [partial / f"{table}.parquet" for table in tables]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise EnvironmentProblemError(
            f"{generator} reported success but did not create {', '.join(missing)}: its command line differs "
            f"from what sparkext expects. Install a matching release: {INSTALL_GENERATOR}"
        )
    return sum(file.stat().st_size for file in files)


def _how_it_ended(status: int) -> str:
    if status > 0:
        return f"failed (exit status {status})"
    return f"was killed by {signal.Signals(-status).name}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


QUERIES = range(1, 23)
"""The numbers of TPC-H's queries."""


def query(number: int) -> str:
    """Return the text of a TPC-H query with the specification's validation parameters, in Spark's SQL."""
    return (Path(__file__).parent / "tpch_queries" / f"q{number:02}.sql").read_text()
