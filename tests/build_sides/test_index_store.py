"""Build files, index files, and their publication by several processes, some of which are killed."""

from __future__ import annotations

import io
import json
import mmap
import multiprocessing
import re
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.build_sides import index_builder, index_store
from sparkext.build_sides.file import collect_batches, read_build_file, write_build_file
from sparkext.build_sides.index_builder import build_index
from sparkext.build_sides.index_file import IndexInfo, read_index_file, write_index_file
from sparkext.build_sides.index_recipe import IndexRecipe
from sparkext.build_sides.index_store import (
    INDEX_SUFFIX,
    LOCK_SUFFIX,
    BuildSide,
    index_in_memory,
    open_build_side,
    remove_with_indexes,
)
from sparkext.errors import BuildFileError, BuildSideTooLargeError
from sparkext.kernels.indexes.protocols import JoinIndex
from sparkext.kernels.keys.normalised import normalise_keys
from sparkext.rows import contiguous
from sparkext.storage.container import ContainerWriter, atomic_file, check_container, map_file
from tests.build_sides import publishers
from tests.build_sides.publishers import KEYS, publish_index, small_index
from tests.oracle.joins import matches
from tests.oracle.rows import canonical
from tests.support.kernel_inputs import FULL_MASK, PAYLOADS, examples, match_lists, with_nulls

SPAWN = multiprocessing.get_context("spawn")
RECIPE = IndexRecipe((0,), (pa.int64(),), (False,), "auto", FULL_MASK)
CLUSTERING = replace(RECIPE, may_cluster=True, gathered=(1,))
PATIENCE = 60


def answers(index: JoinIndex, keys: list[Any]) -> list[list[int]]:
    return match_lists(index.lookup(normalise_keys([pa.array(keys, pa.int64())], [False])))


def assert_published(path: Path) -> None:
    """Assert that the index is complete and right, and that the folder has no other file but its lock."""
    index, _, _ = read_index_file(map_file(path), str(path))
    assert answers(index, [10, 15, 20, 30]) == [[1, 3], [], [2], [0]]
    assert {item.name for item in path.parent.iterdir()} <= {path.name, path.name + LOCK_SUFFIX}


# Publication.


def test_the_first_builds_and_the_next_finds_it(tmp_path: Path) -> None:
    path = tmp_path / "side.index"
    assert publish_index(path, small_index)
    assert_published(path)
    assert not publish_index(path, pytest.fail)
    assert_published(path)


def test_four_processes_build_once(tmp_path: Path) -> None:
    published = tmp_path / "published"
    published.mkdir()
    path, log = published / "side.index", tmp_path / "log"
    barrier = SPAWN.Barrier(4)
    processes = [SPAWN.Process(target=publishers.build_slowly_and_log, args=(path, barrier, log)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
    assert [process.exitcode for process in processes] == [0] * 4
    assert sorted(log.read_text().splitlines()) == ["built", *["returned False True"] * 3, "returned True True"]
    assert_published(path)


@pytest.mark.parametrize(
    "point", [publishers.hang_while_building, publishers.hang_while_writing, publishers.hang_before_renaming]
)
def test_a_killed_builder_is_succeeded(tmp_path: Path, point: Callable[..., None]) -> None:
    path = tmp_path / "side.index"
    reached = SPAWN.Event()
    builder = SPAWN.Process(target=point, args=(path, reached))
    builder.start()
    assert reached.wait(PATIENCE)
    assert not path.exists()
    half_written = list(tmp_path.glob("*.part"))
    assert len(half_written) == (point is not publishers.hang_while_building)
    assert all(file.stat().st_size for file in half_written)
    builder.kill()
    builder.join(PATIENCE)
    assert builder.exitcode == -9
    assert publish_index(path, small_index)
    assert_published(path)


def test_who_waits_takes_over_from_a_killed_builder(tmp_path: Path) -> None:
    """The operating system releases the lock, not the builder."""
    published = tmp_path / "published"
    published.mkdir()
    path, log = published / "side.index", tmp_path / "log"
    reached, barrier = SPAWN.Event(), SPAWN.Barrier(2)
    builder = SPAWN.Process(target=publishers.hang_while_building, args=(path, reached))
    waiter = SPAWN.Process(target=publishers.build_slowly_and_log, args=(path, barrier, log))
    builder.start()
    waiter.start()
    assert reached.wait(PATIENCE)
    barrier.wait(PATIENCE)
    waiter.join(0.3)
    assert waiter.exitcode is None
    assert not log.exists()
    builder.kill()
    waiter.join(PATIENCE)
    builder.join(PATIENCE)
    assert waiter.exitcode == 0
    assert log.read_text().splitlines() == ["built", "returned True True"]
    assert_published(path)


def test_an_error_while_building_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "side.index"

    def build() -> tuple[JoinIndex, IndexInfo]:
        raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        publish_index(path, build)
    assert [item.name for item in tmp_path.iterdir()] == [path.name + LOCK_SUFFIX]
    assert publish_index(path, small_index)
    assert_published(path)


def test_an_error_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "side.index"

    def fail(index: JoinIndex, info: IndexInfo, stream: io.BytesIO, columns: None) -> None:
        stream.write(b"half a file")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index_store, "write_index_file", fail)
    with pytest.raises(OSError, match="No space left"):
        publish_index(path, small_index)
    assert [item.name for item in tmp_path.iterdir()] == [path.name + LOCK_SUFFIX]


def test_a_part_file_of_another_index_is_left_alone(tmp_path: Path) -> None:
    """Another index of the same build side may be built at the same time, under a lock of its own."""
    other = tmp_path / "other.index.123.part"
    other.write_bytes(b"under way")
    stale = tmp_path / "side.index.123.part"
    stale.write_bytes(b"left behind")
    publish_index(tmp_path / "side.index", small_index)
    assert other.exists()
    assert not stale.exists()


# Damage.


def build_bytes() -> bytes:
    stream = io.BytesIO()
    write_build_file(pa.table({"key": pa.array(KEYS), "name": ["a", "b", None, "d"]}), stream)
    return stream.getvalue()


def index_bytes() -> bytes:
    stream = io.BytesIO()
    built = small_index()
    write_index_file(built.index, built.info, stream)
    return stream.getvalue()


READERS: dict[str, tuple[Callable[[], bytes], Callable[[pa.Buffer, str], Any]]] = {
    "build": (build_bytes, read_build_file),
    "index": (index_bytes, read_index_file),
}
TRAILER = struct.Struct("<QI8s")


def footer_of(content: bytes) -> dict[str, Any]:
    length, _, _ = TRAILER.unpack(content[-TRAILER.size :])
    return json.loads(content[-TRAILER.size - length : -TRAILER.size])  # type: ignore[no-any-return]


def with_footer(content: bytes, footer: dict[str, Any]) -> bytes:
    """Return the same blocks with another, well-formed footer."""
    length, _, magic = TRAILER.unpack(content[-TRAILER.size :])
    encoded = json.dumps(footer).encode()
    return content[: -TRAILER.size - length] + encoded + TRAILER.pack(len(encoded), zlib.crc32(encoded), magic)


@pytest.mark.parametrize("kind", READERS)
def test_a_truncated_file_is_refused(kind: str) -> None:
    write, read = READERS[kind]
    content = write()
    read(pa.py_buffer(content), "whole")
    for size in range(len(content)):
        with pytest.raises(BuildFileError, match="the/file"):
            read(pa.py_buffer(content[:size]), "the/file")


@pytest.mark.parametrize("kind", READERS)
def test_any_flipped_bit_of_footer_trailer_or_magic_is_noticed(kind: str) -> None:
    write, read = READERS[kind]
    content = write()
    length, _, _ = TRAILER.unpack(content[-TRAILER.size :])
    for at in [*range(8), *range(len(content) - TRAILER.size - length, len(content))]:
        for bit in (0, 3, 7):
            damaged = bytearray(content)
            damaged[at] ^= 1 << bit
            with pytest.raises(BuildFileError, match="the/file"):
                read(pa.py_buffer(bytes(damaged)), "the/file")


@pytest.mark.parametrize("kind", READERS)
def test_any_flipped_bit_of_a_block_is_noticed(kind: str) -> None:
    """Undetected bits are between blocks, where no reader reads."""
    content = READERS[kind][0]()
    assert check_container(pa.py_buffer(content), "the/file").to_pybytes() == content
    blocks = footer_of(content)["blocks"]
    covered = {at for offset, length, _ in blocks for at in range(offset, offset + length)}
    assert len(covered) == sum(length for _, length, _ in blocks) > 50
    length, _, _ = TRAILER.unpack(content[-TRAILER.size :])
    between = set(range(8, len(content) - TRAILER.size - length)) - covered
    assert all(content[at] == 0 for at in between)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << (at % 8)
        if at in between:
            check_container(pa.py_buffer(bytes(damaged)), "the/file")
        else:
            with pytest.raises(BuildFileError, match="the/file"):
                check_container(pa.py_buffer(bytes(damaged)), "the/file")


@given(data=st.data())
@examples(100)
def test_any_damage_is_noticed(data: st.DataObject) -> None:
    content = index_bytes()
    start = data.draw(st.integers(0, len(content) - 1))
    damage = data.draw(st.binary(max_size=40))
    damaged = content[:start] + damage + content[start + data.draw(st.integers(0, 40)) :]
    try:
        same = check_container(pa.py_buffer(damaged), "the/file")
    except BuildFileError:
        return
    index, _, _ = read_index_file(same, "the/file")
    assert answers(index, [10, 15, 20, 30]) == [[1, 3], [], [2], [0]]


@pytest.mark.parametrize("kind", READERS)
def test_another_version_is_refused(kind: str) -> None:
    write, read = READERS[kind]
    content = write()
    footer = footer_of(content)
    read(pa.py_buffer(with_footer(content, footer)), "the/file")
    with pytest.raises(BuildFileError, match=r"the/file.*version 999"):
        read(pa.py_buffer(with_footer(content, {**footer, "version": 999})), "the/file")


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("content", [b"", b"x", b"PAR1" * 100, bytes(1000)])
def test_a_foreign_file_is_refused(kind: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(BuildFileError, match="foreign"):
        READERS[kind][1](map_file(path), str(path))


def test_an_unknown_index_kind_is_refused() -> None:
    content = index_bytes()
    footer = footer_of(content)
    footer["info"]["kind"] = "tree"
    with pytest.raises(BuildFileError, match=r"the/file.*tree"):
        read_index_file(pa.py_buffer(with_footer(content, footer)), "the/file")


# Build files.


def round_trip(table: pa.Table, path: Path) -> tuple[int, list[pa.Array]]:
    with atomic_file(path) as stream:
        written = write_build_file(table, stream)
    assert written == path.stat().st_size
    rows, columns = read_build_file(map_file(path), str(path))
    for column in columns:
        column.validate(full=True)
        assert len(column) == rows
    return rows, columns


def all_types(repeat: int) -> pa.Table:
    arrays = [pa.array((values * 5)[: 5 * repeat], kind) for kind, values in PAYLOADS.items()]
    arrays = [
        array if array.null_count else with_nulls(array, [row % 3 != 1 for row in range(len(array))])
        for array in arrays
    ]
    return pa.table(arrays, names=[f"{number} {kind}" for number, kind in enumerate(PAYLOADS)])


@pytest.mark.parametrize("form", ["whole", "chunked", "sliced", "empty", "no chunks", "one row"])
def test_round_trip_of_every_type(form: str, tmp_path: Path) -> None:
    table = all_types(3)
    if form == "chunked":
        table = pa.concat_tables([table, table.slice(0, 0), table.slice(3, 7), table.slice(14)])
        assert table.column(0).num_chunks > 1
    elif form == "sliced":
        table = table.slice(3, 9)
    elif form == "empty":
        table = table.slice(0, 0)
    elif form == "no chunks":
        table = pa.table([pa.chunked_array([], field.type) for field in table.schema], schema=table.schema)
    elif form == "one row":
        table = table.slice(7, 1)
    rows, columns = round_trip(table, tmp_path / "side")
    assert rows == table.num_rows
    assert [column.type for column in columns] == table.schema.types
    assert [canonical(column.to_pylist()) for column in columns] == [canonical(c.to_pylist()) for c in table.columns]


def test_a_slice_writes_its_own_rows_only(tmp_path: Path) -> None:
    big = pa.table({"text": ["x" * 1000] * 1000})
    round_trip(big.slice(10, 2), tmp_path / "side")
    assert (tmp_path / "side").stat().st_size < 5_000


def test_no_columns_but_rows(tmp_path: Path) -> None:
    assert round_trip(pa.table({"a": [1, 2, 3]}).select([]), tmp_path / "rows") == (3, [])
    assert round_trip(pa.table({}), tmp_path / "nothing") == (0, [])


def test_columns_are_mapped_and_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "side"
    with atomic_file(path) as stream:
        write_build_file(pa.table({"a": np.arange(10_000), "b": ["text"] * 10_000}), stream)
    buffer = map_file(path)
    _, columns = read_build_file(buffer, str(path))
    for column in columns:
        for part in column.buffers()[1:]:
            assert buffer.address <= part.address < buffer.address + buffer.size
            assert part.address % 8 == 0


@pytest.mark.parametrize(
    "kind, wide",
    [(pa.string(), pa.large_string()), (pa.binary(), pa.large_binary()), (pa.int64(), pa.int64())],
    ids=str,
)
def test_strings_beyond_what_32_bit_offsets_reach(
    kind: pa.DataType, wide: pa.DataType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values: list[Any] = [b"12345", None, b"1234567"] if kind != pa.int64() else [1, None, 3]
    table = pa.table({"column": pa.chunked_array([pa.array(values, kind), pa.array(values[:1], kind)])})
    expected = [value.decode() if kind == pa.string() and value else value for value in [*values, values[0]]]
    for limit, result in ((17, kind), (16, wide)):
        monkeypatch.setattr(contiguous, "MAX_VAR_BYTES", limit)
        _, (column,) = round_trip(table, tmp_path / f"side {limit}")
        assert column.type == result
        assert column.to_pylist() == expected


def far(kind: pa.DataType) -> pa.Array:
    """Return one value of more than half of the range of 32-bit offsets, in memory pages that are never touched."""
    count = (1 << 30) + 1
    offsets = pa.py_buffer(np.array([0, count], dtype=np.int32))
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.nulls(count))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([far(kind.field(0).type)], ["inner"])
    return pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(mmap.mmap(-1, count))])


@pytest.mark.parametrize("kind", [pa.list_(pa.null()), pa.struct([("inner", pa.string())])], ids=str)
def test_nested_elements_beyond_what_32_bit_offsets_reach(kind: pa.DataType) -> None:
    column = pa.chunked_array([far(kind)] * 2)
    told = re.escape(f"column 'deep' of type {kind} has more than 2^31 nested elements or bytes")
    with pytest.raises(BuildSideTooLargeError, match=f"{told}.*Select fewer columns"):
        write_build_file(pa.table({"deep": column}), io.BytesIO())
    with pytest.raises(BuildSideTooLargeError, match="a column of type"):
        contiguous.make_contiguous(column)


def test_columns_of_more_rows_than_32_bits_count(tmp_path: Path) -> None:
    """Columns of types that are stored as Arrow streams, for which Arrow's writer limits rows by default."""
    rows = (1 << 31) + 1
    column = pa.StructArray.from_arrays([pa.nulls(rows)], ["none"])
    read, (found,) = round_trip(pa.table({"column": column}), tmp_path / "side")
    assert read == len(found) == rows
    assert found[rows - 1].as_py() == {"none": None}


def test_too_large_a_build_side_stops_being_read() -> None:
    batch = pa.record_batch({"a": np.arange(1000)})
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(10):
            read.append(number)
            yield batch

    assert collect_batches(batches(), batch.schema, 80_000).num_rows == 10_000
    read.clear()
    with pytest.raises(BuildSideTooLargeError, match=r"3,000 rows.*24,000 bytes.*23,999.*maxBytes"):
        collect_batches(batches(), batch.schema, 23_999)
    assert read == [0, 1, 2]
    assert collect_batches([], batch.schema, 1).schema == batch.schema


# Opening and removing.


def write_side(path: Path, keys: list[int]) -> None:
    with atomic_file(path) as stream:
        write_build_file(pa.table({"key": pa.array(keys, pa.int64()), "row": list(range(len(keys)))}), stream)


def assert_right(side: BuildSide, keys: list[int]) -> None:
    probe = [*keys, -1, 0, 5, 10, 1 << 40]
    assert side.rows == len(keys)
    assert side.columns[0].array.to_pylist() == keys
    assert answers(side.index, probe) == matches([(key,) for key in probe], [(key,) for key in keys], [False])


def test_open_builds_the_index_once_and_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "side"
    write_side(path, [10, 5, 10])
    side = open_build_side(path, RECIPE)
    assert_right(side, [10, 5, 10])
    assert side.index.kind == side.info.kind == "dense"
    monkeypatch.setattr(index_builder, "build_index", pytest.fail)
    assert open_build_side(path, RECIPE) is side
    fresh = index_store._map_build_side(path, RECIPE)
    assert fresh is not side
    assert_right(fresh, [10, 5, 10])


def test_each_recipe_has_its_own_index(tmp_path: Path) -> None:
    path = tmp_path / "side"
    write_side(path, [10, 5, 1 << 40])
    for recipe, kind in (
        (RECIPE, "hash"),
        (IndexRecipe((0,), (pa.int64(),), (False,), "sort_merge", FULL_MASK), "ordered"),
        (IndexRecipe((0,), (pa.int64(),), (False,), "hash", 0), "hash"),
    ):
        side = open_build_side(path, recipe)
        assert side.index.kind == kind
        assert_right(side, [10, 5, 1 << 40])
    assert len(list(tmp_path.glob(f"side.*{INDEX_SUFFIX}"))) == 3


def gathered(side: BuildSide, keys: list[int]) -> list[list[int]]:
    """Return the payload "row" (the number of the build row) of every key's matches."""
    found = match_lists(side.lookup(normalise_keys([pa.array(keys, pa.int64())], [False])))
    return [[side.columns[1].array[row].as_py() for row in rows] for rows in found]


MANY = [5, 7, 5, 7, 5, 7, 5, 7, 5]


def test_many_rows_a_key_get_a_copy_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is made once, stored with the index, mapped by the next process, and removed together with both."""
    path = tmp_path / "side"
    write_side(path, MANY)
    side = open_build_side(path, CLUSTERING)
    assert side.info.clustered
    assert len(list(tmp_path.glob(f"side.*{INDEX_SUFFIX}"))) == 1
    monkeypatch.setattr(index_builder, "build_index", pytest.fail)
    for each in (side, index_store._map_build_side(path, CLUSTERING)):
        assert each.rows == len(MANY)
        assert each.columns[1].array.to_pylist() == [0, 2, 4, 6, 8, 1, 3, 5, 7]
        assert each.lookup(normalise_keys([pa.array([7])], [False])).rows is None
        assert gathered(each, [7, 6, 5]) == [[1, 3, 5, 7], [], [0, 2, 4, 6, 8]]
    remove_with_indexes(path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("algorithm, kind", [("auto", "dense"), ("sort_merge", "ordered")])
def test_the_ranges_of_packed_keys_come_with_the_index(tmp_path: Path, algorithm: str, kind: str) -> None:
    """Two columns of 64 bits are packed identically by the process that builds and by all that map."""
    path = tmp_path / "side"
    keys = [(7, -1), (9, 5), (7, None), (8, 5), (7, -1)]
    with atomic_file(path) as stream:
        columns = [pa.array(column, pa.int64()) for column in zip(*keys, strict=True)]
        write_build_file(pa.table(columns, names=["a", "b"]), stream)
    recipe = IndexRecipe((0, 1), (pa.int64(), pa.int64()), (False, True), algorithm, FULL_MASK)
    open_build_side(path, recipe)
    side = index_store._map_build_side(path, recipe)
    assert side.index.kind == kind
    probe = [(7, -1), (7, None), (8, 5), (9, -1), (6, 5), (10, 5), (None, 5), (7, 6), (7, -2)]
    probe_columns = [pa.array(column, pa.int64()) for column in zip(*probe, strict=True)]
    found = side.lookup(normalise_keys(probe_columns, [False, True], side.info.key_ranges))
    assert match_lists(found) == matches(probe, keys, [False, True])


@pytest.mark.parametrize(
    "recipe, keys, kind, headroom",
    [
        (RECIPE, MANY, pa.string(), None),
        (CLUSTERING, sorted(MANY), pa.string(), None),  # the rows of a key are adjacent already
        (CLUSTERING, sorted(MANY, reverse=True), pa.string(), None),
        (CLUSTERING, [5, 7, 5, 7, 5, 7], pa.string(), None),
        (CLUSTERING, MANY, pa.large_string(), None),
        (CLUSTERING, MANY, pa.string(), 100),
    ],
)
def test_other_build_sides_stay_as_they_are(
    recipe: IndexRecipe, keys: list[int], kind: pa.DataType, headroom: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_builder, "headroom_for", lambda size: headroom)
    columns = [pa.array(keys), pa.array(range(len(keys))), pa.array(["text"] * len(keys), kind)]
    side = index_in_memory(len(keys), columns, recipe)
    assert not side.info.clustered
    assert gathered(side, [7, 5]) == [[row for row, key in enumerate(keys) if key == wanted] for wanted in (7, 5)]


MILLION = 1_000_000
GROUPED = replace(RECIPE, bounds=((1, pa.int64()),))
WIDE = replace(RECIPE, key_columns=(0, 1), key_types=(pa.string(), pa.int64()), null_safe=(False, False))


@pytest.mark.parametrize(
    "recipe, headroom, expected",
    [
        (RECIPE, 96 * MILLION, "hash"),
        (RECIPE, 96 * MILLION - 1, "ordered"),
        (replace(RECIPE, algorithm="hash"), 96 * MILLION - 1, "ordered"),
        (RECIPE, 48 * MILLION, "ordered"),
        (
            RECIPE,
            48 * MILLION - 1,
            r"building the index \(ordered\) takes up to 48,000,000 bytes, but only 47,999,999 are free",
        ),
        (GROUPED, 48 * MILLION, "range"),
        (GROUPED, 48 * MILLION - 1, "sorting its rows takes up to 48,000,000 bytes, but only 47,999,999 are free"),
        (replace(RECIPE, key_types=(pa.string(),)), 150 * MILLION, "ordered"),
        (WIDE, 20 * MILLION, "combining its keys takes up to"),
    ],
)
def test_an_index_takes_no_more_memory_than_there_is(
    recipe: IndexRecipe, headroom: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise, another index type is built, or an error reports the limit, without any allocation."""
    columns = [pa.array(np.arange(MILLION) << 20), pa.array(np.arange(MILLION) ^ 5)]
    if recipe.key_types[0] == pa.string():
        columns[0] = columns[0].cast(pa.string())
    monkeypatch.setattr(index_builder, "headroom_for", lambda size: headroom)
    if " " not in expected:
        assert build_index(MILLION, columns, recipe)[1].kind == expected
        return
    tracemalloc.start()
    try:
        with pytest.raises(BuildSideTooLargeError, match=rf"1,000,000 rows, and {expected}.*Select fewer columns"):
            build_index(MILLION, columns, recipe)
        assert tracemalloc.get_traced_memory()[1] < 10 * MILLION
    finally:
        tracemalloc.stop()


def test_ranked_bounds_count_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared strings are copied for ranking."""
    rows = 200_000
    column = pa.array([f"{number:0200}" for number in range(rows)])
    recipe = IndexRecipe((), (), (), "auto", FULL_MASK, bounds=((0, pa.string()),))
    monkeypatch.setattr(index_builder, "headroom_for", lambda size: 100 * MILLION)
    with pytest.raises(BuildSideTooLargeError, match="sorting its rows takes up to"):
        build_index(rows, [column], recipe)
    monkeypatch.setattr(index_builder, "headroom_for", lambda size: 300 * MILLION)
    assert build_index(rows, [column], recipe)[1].kind == "range"


def test_a_replaced_build_file_is_not_joined_by_its_old_index(tmp_path: Path) -> None:
    """The path is the same, but the rows differ: the old index next to it must not be used."""
    path = tmp_path / "side"
    write_side(path, [10, 5, 10])
    assert_right(open_build_side(path, RECIPE), [10, 5, 10])
    write_side(path, [0, 10, 5])
    assert_right(open_build_side(path, RECIPE), [0, 10, 5])


def test_remove_takes_the_indexes_along_and_nothing_else(tmp_path: Path) -> None:
    path, neighbour = tmp_path / "side_1", tmp_path / "side_10"
    for each in (path, neighbour):
        write_side(each, [10, 5, 10])
        open_build_side(each, RECIPE)
    kept = {item.name for item in tmp_path.iterdir() if item.name.startswith("side_10")}
    assert len(kept) == 3
    side = open_build_side(path, RECIPE)
    remove_with_indexes(path)
    assert {item.name for item in tmp_path.iterdir()} == kept
    assert_right(side, [10, 5, 10])  # mapped files remain readable
    remove_with_indexes(path)


def test_build_sides_whose_file_is_gone_are_let_go(tmp_path: Path) -> None:
    opened = index_store._OpenBuildSides()
    for number in range(index_store._OPEN_BUILD_SIDES + 3):
        path = tmp_path / f"side {number}"
        write_side(path, [number])
        assert_right(opened.get(path, "", partial(index_store._map_build_side, path, RECIPE)), [number])
    assert len(opened._entries) == index_store._OPEN_BUILD_SIDES
    for path in tmp_path.glob("side *"):
        path.unlink()
    last = tmp_path / "last"
    write_side(last, [7])
    opened.get(last, "", partial(index_store._map_build_side, last, RECIPE))
    assert [key[0] for key in opened._entries] == [str(last)]


def test_a_missing_build_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_build_side(tmp_path / "nowhere", RECIPE)


def test_blocks_are_aligned_for_the_mapping() -> None:
    stream = io.BytesIO()
    writer = ContainerWriter(stream)
    placed = [writer.block(lambda sink, size=size: sink.write(b"x" * size)) for size in (1, 64, 0, 65)]
    assert writer.finish({}) == len(stream.getvalue())
    assert [offset % 64 for offset, _ in placed] == [0] * 4
    assert [length for _, length in placed] == [1, 64, 0, 65]
    for offset, length in placed:
        assert stream.getvalue()[offset : offset + length] == b"x" * length


def test_what_belongs_to_a_dropped_broadcast_goes_when_the_next_index_is_built(tmp_path: Path) -> None:
    """Spark deletes only the broadcast's own file, and distributes files over several folders."""
    dropped, made, kept, new = (tmp_path / f"0{n}" / f"broadcast_{n}_python" for n in range(4))
    foreign = tmp_path / "00" / "side.index"
    for path in (dropped, made, kept, new):
        path.parent.mkdir()
        write_side(path, [10, 5, 10])
    foreign.touch()
    open_build_side(dropped, RECIPE)
    write_side(made.with_name(f"{made.name}.build"), [7])
    open_build_side(made.with_name(f"{made.name}.build"), RECIPE)
    open_build_side(kept, RECIPE)
    dropped.unlink()
    made.unlink()
    open_build_side(new, RECIPE)
    assert list(dropped.parent.iterdir()) == [foreign]
    assert list(made.parent.iterdir()) == []
    assert len(list(kept.parent.iterdir())) == len(list(new.parent.iterdir())) == 3
