"""Faults: damaged files, full and failing disks, folders of other users, and names that resemble code."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkext.build_sides import file as build_file
from sparkext.build_sides import index_store, published_files, rows_on_disk, sources
from sparkext.build_sides.cached_rows import evict_other_entries
from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.index_cache import evict, touch
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import INDEX_SUFFIX, BuildSide, index_path_of, open_build_side
from sparkext.build_sides.published_files import BroadcastBytes, StreamedBroadcast
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.errors import BuildFileError, BuildSideTooLargeError
from sparkext.expressions.expression_code import generate_expression_code
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.kernels.keys.normalised import normalise_keys
from sparkext.kernels.runtime.local_folder import create_private_folder
from sparkext.memory.probes import Headroom
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.expressions.expression import parse_expression
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec
from sparkext.predicates.python_predicate import bind_predicate, functions_of_predicate
from sparkext.rows.collected import CollectedRows
from sparkext.storage import container, publication
from sparkext.storage.container import atomic_file, identify_file, map_checked, private_file
from sparkext.storage.last_used import LruCache
from sparkext.storage.local_folder import local_folder
from sparkext.storage.publication import LOCK_SUFFIX, hold_lock_if_free, lock_of, locked
from tests.support.kernel_inputs import match_lists

RECIPE = IndexRecipe((0,), (pa.int64(),), (False,), "auto", FULL_MASK, gathered=(1,))
SORTED = replace(RECIPE, algorithm="sort_merge")
KEYS = [1 << 40, 5, 1 << 40, 7]
TABLE = pa.table({"key": pa.array(KEYS), "name": ["a", "b", None, "d"]})
IS_ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget all checked files, like a new process; return a function that does so again."""

    def forget() -> None:
        monkeypatch.setattr(container, "_checked_files", LruCache(container._REMEMBERED_FILES))
        monkeypatch.setattr(index_store, "_opened", index_store._OpenBuildSides())
        monkeypatch.setattr(sources, "_private", LruCache(sources._PRIVATE_BUILD_SIDES))

    forget()
    return forget


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    return tmp_path / "sparkext"


@dataclass(frozen=True)
class LocalFile(published_files.MappedFile):
    """A build file outside of Spark's broadcasts."""

    where: Path

    def path(self) -> Path:
        return self.where


@dataclass(frozen=True)
class LocalStreams(StreamedBroadcast):
    """Arrow streams outside of Spark's broadcasts."""

    where: Path = Path()

    def path(self) -> Path:
        return self.where


def write_side(path: Path) -> LocalFile:
    with atomic_file(path) as stream:
        write_build_file(TABLE, stream)
    return LocalFile(path)


def write_streams(path: Path) -> LocalStreams:
    sink = io.BytesIO()
    for start in (0, 2):
        with pa.ipc.new_stream(sink, TABLE.schema) as writer:
            writer.write_table(TABLE.slice(start, 2))
    path.write_bytes(sink.getvalue())
    return LocalStreams(0, TABLE.schema, zlib.crc32(sink.getvalue()), path)


def scanned(path: Path) -> ScannedFiles:
    pq.write_table(TABLE, path, row_group_size=2)
    spec = ScanSpec((ScanColumn("key"), ScanColumn("name")), 2, None, case_sensitive=False)
    scan = ParquetScan(spec, pa.schema([("c0", pa.int64()), ("c1", pa.string())]), 1 << 20)
    return ScannedFiles(scan, (DataFile(str(path), path.stat().st_size).split(0, 2**62),), 1 << 30, 2)


def assert_right(side: BuildSide) -> None:
    found = match_lists(side.lookup(normalise_keys([pa.array([1 << 40, 7, 6, 5])], [False])))
    names = side.columns[1].array.to_pylist()
    assert [sorted(names[row] or "" for row in rows) for rows in found] == [["", "a"], ["d"], [], ["b"]]


def nothing_but(folder: Path, *names: str) -> None:
    assert {item.name for item in folder.iterdir()} == set(names)


# Damaged files.


def flipped(at: float) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        blocks = container.read_footer(pa.py_buffer(content), "")["blocks"]
        offset, length, _ = max(blocks, key=lambda block: block[1])
        damaged = bytearray(content)
        damaged[offset + int(at * (length - 1))] ^= 4
        return bytes(damaged)

    return damage


def of_version(version: int) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        footer = container.read_footer(pa.py_buffer(content), "")
        encoded = container.json.dumps({**footer, "version": version}).encode()
        length, _, magic = container._TRAILER.unpack(content[-container._TRAILER.size :])
        begin = content[: -container._TRAILER.size - length]
        return begin + encoded + container._TRAILER.pack(len(encoded), zlib.crc32(encoded), magic)

    return damage


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "magic only": lambda content: content[:8],
    "half": lambda content: content[: len(content) // 2],
    "a byte short": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
    "foreign": lambda content: b"PAR1" * 100,
    "flipped first": flipped(0),
    "flipped in the middle": flipped(0.5),
    "flipped last": flipped(1),
    "older": of_version(container.FORMAT_VERSION - 1),
    "newer": of_version(container.FORMAT_VERSION + 1),
}


@pytest.fixture(params=DAMAGE)
def damage(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        new = path.with_name("damaged")
        new.write_bytes(DAMAGE[request.param](path.read_bytes()))
        new.replace(path)

    return change


def test_a_damaged_index_is_built_again(
    tmp_path: Path, damage: Callable[[Path], None], new_process: Callable[[], None]
) -> None:
    source = write_side(tmp_path / "side")
    assert_right(source.open(RECIPE))
    (index,) = tmp_path.glob(f"*{INDEX_SUFFIX}")
    whole = index.stat().st_size
    damage(index)
    new_process()
    assert_right(source.open(RECIPE))
    assert abs(index.stat().st_size - whole) < 50, "the footer tells how long it took"
    nothing_but(tmp_path, "side", index.name, index.name + LOCK_SUFFIX)
    new_process()
    map_checked(index)


def test_a_damaged_entry_of_the_cache_is_built_again(
    tmp_path: Path, folder: Path, damage: Callable[[Path], None], new_process: Callable[[], None]
) -> None:
    source = scanned(tmp_path / "file.parquet")
    assert_right(source.open(RECIPE))
    entry = source.entry(RECIPE)
    damage(entry)
    new_process()
    assert_right(source.open(RECIPE))
    nothing_but(folder, entry.name, entry.name + LOCK_SUFFIX)
    new_process()
    map_checked(entry)
    assert_right(source.open(RECIPE))


def test_a_damaged_build_file_is_an_error(
    tmp_path: Path, damage: Callable[[Path], None], new_process: Callable[[], None]
) -> None:
    """A worker cannot rebuild the file: Spark retries on another node, or reports the error."""
    source = write_side(tmp_path / "side")
    damage(tmp_path / "side")
    new_process()
    for _ in range(2):
        with pytest.raises(BuildFileError, match=str(tmp_path / "side")):
            source.open(RECIPE)
        with pytest.raises(BuildFileError, match=str(tmp_path / "side")):
            source.columns()
    nothing_but(tmp_path, "side")


def test_a_damaged_build_file_that_was_made_here_is_made_again(
    tmp_path: Path, damage: Callable[[Path], None], new_process: Callable[[], None]
) -> None:
    source = write_streams(tmp_path / "streams")
    assert_right(source.open(RECIPE))
    damage(source.build_file())
    new_process()
    assert_right(source.open(RECIPE))
    assert source.columns()[1][0].to_pylist() == KEYS


@pytest.mark.parametrize("size", [0, 100, -8, -1, None])
def test_damaged_streams_are_an_error(tmp_path: Path, size: int | None) -> None:
    """Truncated between two streams, or with other values, the file would still be readable."""
    source = write_streams(tmp_path / "streams")
    content = bytearray(source.where.read_bytes())
    if size is None:
        content[content.index((1 << 40).to_bytes(8, "little"))] ^= 1
    source.where.write_bytes(content[:size])
    for read in (lambda: source.open(RECIPE), source.columns):
        with pytest.raises(BuildFileError, match="streams: the checksum"):
            read()
    nothing_but(tmp_path, "streams", f"streams.{source.digest()[:16]}.build.lock")


def test_a_damaged_encrypted_broadcast_is_an_error() -> None:
    sink = io.BytesIO()
    write_build_file(TABLE, sink)
    content = sink.getvalue()

    @dataclass
    class Broadcast:
        value: bytes

    assert_right(BroadcastBytes("whole", Broadcast(content)).open(RECIPE))
    with pytest.raises(BuildFileError, match=r"encrypted broadcast.*checksum"):
        BroadcastBytes("damaged", Broadcast(flipped(0.5)(content))).open(RECIPE)


def test_a_disk_that_damages_everything_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build is not retried endlessly."""
    writes = []

    def write(index: Any, info: Any, stream: Any, columns: Any) -> None:
        writes.append(stream.write(b"something else"))

    monkeypatch.setattr(index_store, "write_index_file", write)
    source = write_side(tmp_path / "side")
    with pytest.raises(BuildFileError, match=rf"side.*{INDEX_SUFFIX}: 14 bytes are too few"):
        source.open(RECIPE)
    assert len(writes) == 2


def test_files_are_checked_once_by_processes_that_have_not_written_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_process: Callable[[], None]
) -> None:
    looked_at: list[str] = []
    checked = container.check_container

    def counting(buffer: pa.Buffer, origin: str) -> pa.Buffer:
        looked_at.append(Path(origin).name)
        return checked(buffer, origin)

    monkeypatch.setattr(container, "check_container", counting)
    source = write_side(tmp_path / "side")
    for recipe in (RECIPE, SORTED):
        open_build_side(tmp_path / "side", recipe)
    assert looked_at == []
    new_process()
    for recipe in (RECIPE, SORTED, RECIPE):
        open_build_side(tmp_path / "side", recipe)
        source.columns()
    assert looked_at.count("side") == 1 and len(looked_at) == len(set(looked_at)) == 3
    looked_at.clear()
    (tmp_path / "copy").write_bytes((tmp_path / "side").read_bytes())
    (tmp_path / "copy").replace(tmp_path / "side")
    source.columns()
    assert looked_at == ["side"]


# Full and failing disks.


@contextmanager
def failing_writes(monkeypatch: pytest.MonkeyPatch, number: int, after: int) -> Iterator[None]:
    """Make the system call fail that would write more than `after` bytes of published files."""
    written = 0

    class Failing(io.FileIO):
        def write(self, data: Any) -> int:
            nonlocal written
            if written + memoryview(data).nbytes > after:
                raise OSError(number, os.strerror(number))
            written += memoryview(data).nbytes
            return super().write(data)

    with monkeypatch.context() as patch:
        patch.setattr(container, "FileIO", Failing)
        yield


@pytest.mark.parametrize("after", [0, 10])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("kind", ["broadcast", "streams", "files"])
def test_a_disk_that_fails_costs_memory_only(
    kind: str, number: int, after: int, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For streams, the build file cannot be written; files this small fail when they are closed."""
    make = {"broadcast": write_side, "streams": write_streams, "files": scanned}[kind]
    source = make(tmp_path / "side")
    with failing_writes(monkeypatch, number, after), pytest.warns(UserWarning, match="in memory"):
        assert_right(source.open(RECIPE))
    left = {item.name for item in [*tmp_path.iterdir(), *folder.glob("*")]}
    assert {name for name in left if not name.endswith(LOCK_SUFFIX)} <= {"side", "sparkext"}
    assert_right(source.open(RECIPE))


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
@pytest.mark.parametrize("kind", ["broadcast", "streams", "files"])
def test_a_disk_without_locks_costs_memory_only(
    kind: str, number: int, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some shared file systems are mounted without locks."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("sparkext.storage.publication.fcntl.flock", refuse)
    source = {"broadcast": write_side, "streams": write_streams, "files": scanned}[kind](tmp_path / "side")
    with pytest.warns(UserWarning, match="in memory"):
        assert_right(source.open(RECIPE))
    evict_other_entries([(source, RECIPE)], 1 << 30)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", str(disk)]
    if not IS_ROOT or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk, and not everywhere")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def large(path: Path) -> ScannedFiles:
    """Return rows of 8 MB in many row groups."""
    source = scanned(path)
    pq.write_table(pa.concat_tables([TABLE] * 4 + [wide_rows(2000)] * 4), path, row_group_size=500)
    split = DataFile(str(path), path.stat().st_size).split(0, 2**62)
    return replace(source, splits=(split,))


def wide_rows(rows: int) -> pa.Table:
    return pa.table({"key": np.arange(100, 100 + rows) << 33, "name": ["x" * 1000] * rows})


def scarce(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    reading = Headroom(size, "cgroup")
    monkeypatch.setattr(rows_on_disk, "process_probe", lambda: SimpleNamespace(headroom=lambda: reading))
    monkeypatch.setattr(build_file, "headroom_for", lambda needed: size)


@pytest.mark.parametrize("headroom", [1 << 40, 1 << 24], ids=["ample", "scarce"])
def test_a_full_disk(headroom: int, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If memory is scarce, the rows themselves are written, and fill the disk."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(small_disk))
    scarce(monkeypatch, headroom)
    source = large(tmp_path / "file.parquet")
    with pytest.warns(UserWarning, match=r"(?s)No space left on device.*in memory"):
        side = source.open(RECIPE)
    assert side.rows == 8016
    assert [item.suffix for item in (small_disk / "sparkext").iterdir()] == [LOCK_SUFFIX]
    evict_other_entries([(source, RECIPE)], 1 << 30)
    scarce(monkeypatch, 1 << 21)
    with pytest.raises(BuildSideTooLargeError, match=r"does not fit in memory.*2,097,152 are free.*Select fewer"):
        source.columns()


def test_streams_that_fit_neither_disk_nor_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_streams(tmp_path / "streams")
    assert source.columns()[0] == 4
    scarce(monkeypatch, 10)
    with pytest.raises(BuildSideTooLargeError, match=r"does not fit in memory.* 10 are free"):
        source.columns()


def test_rows_in_files_leave_no_names(tmp_path: Path) -> None:
    """Files without names need no deletion, however the process ends."""
    with CollectedRows(lambda rows, size: None, lambda: 100_000, tmp_path) as collected:
        for number in reversed(range(20)):
            collected.add((number, 0), pa.record_batch({"n": np.full(10_000, number)}))
            assert collected.spilled == (number < 19)
            nothing_but(tmp_path)
        table = collected.table(pa.schema({"n": pa.int64()}))
    assert table.column("n").to_pylist() == np.repeat(np.arange(20), 10_000).tolist()
    assert pa.total_allocated_bytes() < 1 << 20


@pytest.mark.parametrize(
    "most, size, together",
    [
        (None, 0, 4),
        (1 << 30, 0, 4),
        (1 << 28, 0, 1),
        (1 << 20, 1000, 4),
        (100_000, 8000, 4),
        (80_000, 8000, 3),
        (1, 8, 1),
    ],
)
def test_no_more_threads_read_than_there_is_memory_for(most: int | None, size: int, together: int) -> None:
    """Before the first row arrives, the size of rows is unknown."""
    collected = CollectedRows(lambda rows, size: None, lambda: most)
    if size:
        collected.add((0, 0), pa.record_batch({"n": np.zeros(size // 8)}))
    started, ended = [threading.Semaphore(0) for _ in range(2)]

    def read() -> None:
        with collected.turn():
            started.release()
            ended.acquire()

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(together):
        assert started.acquire(timeout=30)
    assert not started.acquire(timeout=0.02)
    ended.release(4)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


# Files that others leave, or put in the way.


def test_what_killed_writers_left_goes_with_the_next_eviction(folder: Path, tmp_path: Path) -> None:
    """Files that are being written, or may be, are retained."""
    source = scanned(tmp_path / "file.parquet")
    source.open(RECIPE)
    entry = source.entry(RECIPE)
    killed, busy = (folder / f"{name}.0123{INDEX_SUFFIX}" for name in ("killed", "busy"))
    for each in (entry, killed, busy):
        each.with_name(each.name + LOCK_SUFFIX).touch()
        each.with_name(f"{each.name}.0123456789abcdef.part").write_bytes(b"half")
    (folder / "run.7.part").touch()  # a report
    with locked(busy.with_name(busy.name + LOCK_SUFFIX)):
        evict_other_entries([(source, RECIPE)], 1 << 30)
    kept = {entry.name, entry.name + LOCK_SUFFIX, busy.name + LOCK_SUFFIX, f"{busy.name}.0123456789abcdef.part"}
    nothing_but(folder, *kept, "run.7.part")
    evict_other_entries([(source, RECIPE)], 1 << 30)
    nothing_but(folder, entry.name, entry.name + LOCK_SUFFIX, "run.7.part")


def test_a_cache_of_many_entries_is_listed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task evicts entries: it must not list all entries for each of them."""
    folder.mkdir()
    for number in range(300):
        for name in (f"{number}.0123{INDEX_SUFFIX}", f"{number}.0123{INDEX_SUFFIX}{LOCK_SUFFIX}"):
            (folder / name).touch()
    listed = []
    for name in ("listdir", "scandir"):
        once = getattr(os, name)
        monkeypatch.setattr(os, name, lambda path, once=once: listed.append(path) or once(path))
    evict([], 1 << 30)
    assert [*map(Path, listed)] == [folder]
    assert len([*folder.iterdir()]) == 600


def test_a_file_replaced_with_its_times_kept_is_another_build_side(folder: Path, tmp_path: Path) -> None:
    """The file is replaced as `cp -p` does, with its size and inode unchanged."""
    path = tmp_path / "file.parquet"
    source = scanned(path)
    assert_right(source.open(RECIPE))
    before = path.stat()
    pq.write_table(TABLE.set_column(0, "key", pa.array([2 << 40, 5, 2 << 40, 7])), tmp_path / "other", row_group_size=2)
    path.write_bytes((tmp_path / "other").read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)
    side = source.open(RECIPE)
    assert not side.reused
    assert (
        match_lists(side.lookup(normalise_keys([pa.array([1 << 40, 2 << 40])], [False], side.info.key_ranges)))[0] == []
    )


def test_what_is_used_stays_the_file_that_it_is(folder: Path, tmp_path: Path) -> None:
    """A process does not map or check it again after its use was recorded, or it was renamed in place."""
    source, side = scanned(tmp_path / "file.parquet"), write_side(tmp_path / "side")
    built = source.open(RECIPE)
    entry = source.entry(RECIPE)
    for path in (entry, tmp_path / "side"):
        assert (str(path), identify_file(path)) in container._checked_files
    before = identify_file(entry)
    again = source.open(RECIPE)
    assert again.reused and again.index is built.index
    assert identify_file(entry) == before
    assert side.open(RECIPE).index is side.open(RECIPE).index


def test_the_least_recently_used_index_goes_first(folder: Path, tmp_path: Path) -> None:
    sources_ = [scanned(tmp_path / f"{number}.parquet") for number in range(3)]
    entries = [source.entry(RECIPE) for source in sources_]
    for source in sources_:
        source.open(RECIPE)
    for at, number in enumerate((1, 2, 0)):
        touch(entries[number])
        os.utime(lock_of(entries[number]), ns=(at, at))  # clocks are coarse
    sizes = [entry.stat().st_size for entry in entries]  # an entry's size varies with the digits of its times
    for left in ({0, 1, 2}, {0, 2}, {0}):
        evict([], sum(sizes[number] for number in left))
        assert {number for number in range(3) if entries[number].exists()} == left
    lock_of(entries[0]).unlink()  # without a lock file, the index's own time counts
    evict([], sizes[0])
    assert entries[0].exists()


def test_a_lock_that_is_removed_is_not_held(tmp_path: Path) -> None:
    """A process that waits for a deleted lock acquires the new lock file that others would open."""
    lock = tmp_path / "lock"
    entered, left = threading.Event(), threading.Event()

    def wait() -> None:
        with locked(lock):
            entered.set()
            left.wait(30)

    with locked(lock):
        waiter = threading.Thread(target=wait)
        waiter.start()
        assert not entered.wait(0.1)
        lock.unlink()
    assert entered.wait(30)
    with hold_lock_if_free(lock) as is_free:
        assert not is_free
    left.set()
    waiter.join()
    with hold_lock_if_free(lock) as is_free:
        assert is_free


def test_who_holds_a_lock_may_take_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as its process is not suspended."""
    monkeypatch.setattr(publication, "_TOUCH_SECONDS", 0.05)
    monkeypatch.setattr(publication, "_PATIENCE_SECONDS", 0.5)
    entered, left = threading.Event(), threading.Event()

    def hold() -> None:
        with locked(tmp_path / "lock"):
            entered.set()
            left.wait(1.5)

    holder = threading.Thread(target=hold)
    holder.start()
    assert entered.wait(30)
    with locked(tmp_path / "lock"):
        assert not left.is_set()
    holder.join()


STOPPED = """
import os, signal, sys
from pathlib import Path
from sparkext.storage.publication import locked
with locked(Path(sys.argv[1])):
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("kind", ["broadcast", "streams", "files"])
def test_a_process_that_stands_still_with_a_lock_costs_memory_only(
    kind: str, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "_PATIENCE_SECONDS", 0.3)
    source = {"broadcast": write_side, "streams": write_streams, "files": scanned}[kind](tmp_path / "side")
    local_folder()
    if isinstance(source, ScannedFiles):
        path = source.entry(RECIPE)
    elif kind == "streams":
        path = tmp_path / f"side.{source.digest()[:16]}.build"
    else:
        path = index_path_of(tmp_path / "side", RECIPE)
    command = [sys.executable, "-c", STOPPED, str(lock_of(path))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
            with pytest.warns(UserWarning, match=r"the process that holds a lock has made no progress.*in memory"):
                assert_right(source.open(RECIPE))
            evict_other_entries([(source, RECIPE)], 1 << 30)
        finally:
            holder.kill()
    assert_right(source.open(RECIPE))
    assert path.exists(), "with nobody in its way it is shared again"


def test_everything_is_private(tmp_path: Path, folder: Path) -> None:
    """To the user, for any umask."""
    umask = os.umask(0)
    try:
        source = scanned(tmp_path / "file.parquet")
        source.open(RECIPE)
        write_side(tmp_path / "side").open(RECIPE)
        evict_other_entries([(source, RECIPE)], 1 << 30)
        with private_file(folder / "run.1.report") as stream:
            stream.write(b"{}")
    finally:
        os.umask(umask)
    assert folder.stat().st_mode & 0o777 == 0o700
    files = [*folder.iterdir(), *tmp_path.glob("side*")]
    assert len(files) == 6
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_folder_that_others_can_write_is_closed(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    assert local_folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_without_spark_each_user_has_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    assert local_folder() == tmp_path / f"sparkext-{os.geteuid()}"


@pytest.mark.parametrize("trap", ["link", "dangling link", "file", "another user's"])
def test_what_lies_in_the_way_is_not_used(trap: str, folder: Path, tmp_path: Path) -> None:
    """The query runs without a cache."""
    elsewhere = tmp_path / "elsewhere"
    if trap == "file":
        folder.touch()
    elif trap == "another user's":
        if not IS_ROOT:
            pytest.skip("only root can make a folder of another user's")
        folder.mkdir()
        os.chown(folder, 12345, 12345)
    else:
        folder.symlink_to(elsewhere)
        if trap == "link":
            elsewhere.mkdir()
    with pytest.raises(PermissionError, match=str(folder)):
        create_private_folder(folder)
    source = scanned(tmp_path / "file.parquet")
    with pytest.warns(UserWarning, match=r"cannot be cached on disk.*in memory"):
        assert_right(source.open(RECIPE))
    evict_other_entries([(source, RECIPE)], 1 << 30)
    assert trap != "link" or list(elsewhere.iterdir()) == []
    assert trap != "another user's" or list(folder.iterdir()) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path / "lock"):
        pass
    (tmp_path / "file").symlink_to(target)
    with atomic_file(tmp_path / "file") as stream:
        stream.write(b"new")
        (temporary,) = tmp_path.glob("file.*")
        assert len(temporary.name) == len("file.0123456789abcdef.part"), "of 64 random bits"
    assert target.read_bytes() == b"untouched"
    assert not (tmp_path / "file").is_symlink()


# Names of users are not executed as code.


HOSTILE = "x, __import__('os').abort()"


def test_names_of_columns_are_not_run() -> None:
    """Fields are numbered in the compiled text; records accept only identifiers."""
    for fields in ([(HOSTILE, "int64")], [("class", "int64")]):
        with pytest.raises(ValueError, match="Type names and field names"):
            bind_predicate(lambda left, right: True, fields, [])
    fields = [("plain", "int64"), ("flag", "bool")]
    bound = bind_predicate(lambda left, right: True, fields, [])
    load, holds = functions_of_predicate(bound, fields, [])
    assert load.__code__.co_names == ()
    assert set(holds.__code__.co_names) == {"np", "uint8", "predicate", "Left", "Right", "int64", "Exception"}


@pytest.mark.parametrize(
    ("of", "place"), [("column", "type"), ("literal", "type"), ("literal", "text"), ("cast", "op")]
)
def test_parts_of_an_expression_are_not_run(of: str, place: str) -> None:
    literal = {"op": "literal", "type": "int64", "text": "1"}
    column = {"op": "column", "type": "int64", "source": 0, "column": 0}
    cast = {"op": "cast", "type": "int64", "args": [literal]}
    hostile = {**{"column": column, "literal": literal, "cast": cast}[of], place: HOSTILE}
    with pytest.raises(ValueError):
        generate_expression_code(parse_expression({"op": "=", "type": "bool", "args": [hostile, literal]}), {}, [])
