"""A build side that is larger than the memory limit, read and indexed in a control group that has no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kernels.memory_group import memory_group, run_in_group

LIMIT = 320 << 20
ROWS = 2_300_000
TEXTS = [f"{number:03}" * 75 for number in range(100)]  # 225 bytes each

READ = """
import json, sys, threading
from pathlib import Path
import numpy as np, pyarrow as pa
from sparkext.index_builder import IndexRecipe
from sparkext.kernels.keys import encode_keys
from sparkext.parquet_scan import ParquetScan
from sparkext.plans.scan import DataFile, ScanColumn, ScanSpec
from sparkext.sources import ScannedFiles

path, group = map(Path, sys.argv[1:])
spec = ScanSpec((ScanColumn("k"), ScanColumn("t")), 2, None, case_sensitive=False)
scan = ParquetScan(spec, pa.schema([("c0", pa.int64()), ("c1", pa.string())]), 1 << 16)
source = ScannedFiles(scan, (DataFile(str(path), path.stat().st_size).split(0, 2**62),), 1 << 40, 1 << 40, 2)
recipe = IndexRecipe((0,), (pa.int64(),), (False,), "auto", (1 << 64) - 1, gathered=(1,))

def anonymous():
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int(stat["total_rss"])

most = 0
def watch():
    global most
    while not ended.wait(0.005):
        most = max(most, anonymous())
ended = threading.Event()
watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
side = source.open(recipe)
ended.set()
watcher.join()
wanted = np.arange(0, side.rows, 99_730)
found = side.lookup(encode_keys([pa.array(wanted * 1000003)], [False], side.info.key_ranges))
rows = found.first if found.rows is None or found.counts is None else found.rows[found.first]
texts = side.columns[1].take(rows, missing=False).to_pylist()
print(json.dumps({
    "kind": side.info.kind, "build_bytes": side.info.build_bytes, "anonymous": most,
    "right": texts == [f"{n % 100:03}" * 75 for n in wanted.tolist()],
    "peak": int((group / "memory.max_usage_in_bytes").read_text()),
}))
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that decode to 545 MB, from a file of 14."""
    path = tmp_path_factory.mktemp("data") / "file.parquet"
    with pq.ParquetWriter(path, pa.schema({"k": pa.int64(), "t": pa.string()}), use_dictionary=["t"]) as writer:
        for start in range(0, ROWS, 1 << 18):
            numbers = np.arange(start, min(start + (1 << 18), ROWS))
            texts = pa.DictionaryArray.from_arrays(numbers.astype(np.int32) % 100, TEXTS)
            writer.write_table(pa.table({"k": numbers * 1000003, "t": texts.cast(pa.string())}))
    return path


@pytest.fixture
def group() -> Iterator[Path]:
    with memory_group(LIMIT) as made:
        yield made


def test_a_build_side_larger_than_the_memory(
    file: Path, group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    ran = run_in_group(group, READ, file, group)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    print(told)
    assert told["right"]
    assert told["build_bytes"] > 1.6 * LIMIT
    assert told["anonymous"] < 0.9 * LIMIT and told["peak"] <= LIMIT
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == 2, "the entry and its lock"
