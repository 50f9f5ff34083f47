"""Build sides larger than the memory limit, which is the limit of a control group or a configured one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.memory_group import memory_group, run_in_group, run_python

LIMIT = 320 << 20
ROWS = 2_300_000
TEXTS = [f"{number:03}" * 75 for number in range(100)]  # 225 bytes each

READ = """
import json, sys, threading
from pathlib import Path
import numpy as np, pyarrow as pa
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.kernels.keys.normalised import normalise_keys
from sparkext.memory.probes import process_probe
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec
from sparkext.engine.scanned_files import ScannedFiles

path, own_limit = Path(sys.argv[1]), int(sys.argv[2])
spec = ScanSpec((ScanColumn("k"), ScanColumn("t")), 2, None, case_sensitive=False)
scan = ParquetScan(spec, pa.schema([("c0", pa.int64()), ("c1", pa.string())]), 1 << 16)
source = ScannedFiles(scan, (DataFile(str(path), path.stat().st_size).split(0, 2**62),), 1 << 40, 2)
recipe = IndexRecipe((0,), (pa.int64(),), (False,), "auto", (1 << 64) - 1, gathered=(1,))

most = 0
def watch():
    global most
    while not ended.wait(0.005):
        most = max(most, process_probe().own_bytes())
ended = threading.Event()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
with process_probe().limited(own_limit):
    side = source.open(recipe)
ended.set()
watcher.join()
wanted = np.arange(0, side.rows, 99_730)
found = side.lookup(normalise_keys([pa.array(wanted * 1000003)], [False], side.info.key_ranges))
rows = found.first if found.rows is None or found.counts is None else found.rows[found.first]
texts = side.columns[1].take(rows, missing=False).to_pylist()
print(json.dumps({
    "kind": side.info.kind, "build_bytes": side.info.build_bytes, "anonymous": most,
    "right": texts == [f"{n % 100:03}" * 75 for n in wanted.tolist()],
}))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write rows that decode to 545 MB, in a file of 14 MB."""
    path = tmp_path_factory.mktemp("data") / "file.parquet"
    with pq.ParquetWriter(path, pa.schema({"k": pa.int64(), "t": pa.string()}), use_dictionary=["t"]) as writer:
        for start in range(0, ROWS, 1 << 18):
            numbers = np.arange(start, min(start + (1 << 18), ROWS))
            texts = pa.DictionaryArray.from_arrays(numbers.astype(np.int32) % 100, TEXTS)
            writer.write_table(pa.table({"k": numbers * 1000003, "t": texts.cast(pa.string())}))
    return path


@pytest.fixture(autouse=True)
def local_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path


def check(ran: subprocess.CompletedProcess[str], local_folder: Path) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    print(told)
    assert told["right"]
    assert told["build_bytes"] > 1.6 * LIMIT
    assert told["anonymous"] < 0.9 * LIMIT
    (folder,) = local_folder.iterdir()
    assert len(list(folder.iterdir())) == 2, "the entry and its lock"


def test_a_build_side_larger_than_a_control_group(file: Path, local_folder: Path) -> None:
    with memory_group(LIMIT) as group:
        check(run_in_group(group, READ, file, 0), local_folder)
        assert int((group / "memory.max_usage_in_bytes").read_text()) <= LIMIT


def test_a_build_side_larger_than_the_configured_limit(file: Path, local_folder: Path) -> None:
    """Index building respects the configured limit even if the machine has plenty of memory."""
    check(run_python(READ, file, LIMIT), local_folder)
