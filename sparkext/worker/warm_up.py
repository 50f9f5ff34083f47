"""Runs tiny pipelines, so that a process has the commonest kernels loaded before its first real morsel.

Importing numba and the kernels takes half a second, and loading compiled kernels from numba's cache as long again.
"""

from __future__ import annotations

import pyarrow as pa

import sparkext.worker.work_order  # noqa: F401  what a work order's first call would import
from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.index_recipe import index_recipe
from sparkext.build_sides.index_store import index_in_memory
from sparkext.config import read_settings
from sparkext.plans.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.storage.container import checked
from sparkext.worker.join_pipeline import join_pipeline
from sparkext.worker.pipeline import Resources
from sparkext.worker.sources.row_batches import RowBatches

_KEYS = (
    (pa.array([1, 2, 3], pa.int64()), "int64"),  # dense
    (pa.array([1, 2**40, 2**60], pa.int64()), "int64"),  # hashed
    (pa.array([1, 1, 2**60], pa.int64()), "int64"),  # and repeated
    (pa.array(["a", "b", "c"]), "string"),
)
_OUTPUTS = tuple(ColumnRef(source, column) for source in (0, 1) for column in (0, 1))


def warm_up() -> None:
    """Join a few rows with themselves by every kind of index that `auto` chooses, with number and string payload.

    And write a build file and check it, as workers do.
    """
    settings = read_settings(lambda key: None, {})
    for keys, key_type in _KEYS:
        for how in ("inner", "left"):
            key = KeyPair(ColumnRef(0, 0), 0, key_type, null_safe=False)
            spec = PipelineSpec(2, (JoinSpec(how, (key,), "auto", "warm-up"),), _OUTPUTS)
            columns = [keys, pa.array(["x", "y", "z"])]
            build = index_in_memory(len(keys), columns, index_recipe(spec, 0, settings.debug_hash_mask))
            schema = pa.schema(list(zip("abcd", 2 * [column.type for column in columns], strict=True)))
            pipeline = join_pipeline(spec, [build], schema, settings, Resources(lambda: None))
            batch = pa.record_batch(columns, names=["key", "payload"])
            for _ in pipeline.run(RowBatches([batch], spec, batch.num_rows)):
                pass
    sink = pa.BufferOutputStream()
    write_build_file(pa.table({"key": pa.array([1], pa.int64())}), sink)
    checked(sink.getvalue(), "warm-up")
