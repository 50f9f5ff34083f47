"""The workers' end of the session extension: makes the function that a work order from the JVM describes.

The order is JSON (`jvm/common/WorkOrder.scala` writes it), and the pickle that Spark hands to a worker is nothing but a
call of `make` with it: the JVM needs no Python to write one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sparkext import spark_bridge
from sparkext.config import read_settings
from sparkext.reporters import FileReporter
from sparkext.sources import StreamedBroadcast
from sparkext.worker import PipelineTask

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def make(order_json: str) -> tuple[PipelineTask, StructType]:
    """Return the function for `mapInArrow` and its return type.

    The order's fields: `spec` (see `plans.spec`), `settings` (configuration strings), `output` (a Spark schema),
    `builds` (per join the broadcast's id and a Spark schema), `tasks_sharing` (a number, or missing if unknown).
    """
    order: dict[str, Any] = json.loads(order_json)
    output = _schema(order["output"])
    sources = tuple(
        StreamedBroadcast(build["broadcast"], spark_bridge.arrow_schema(_schema(build["schema"])))
        for build in order["builds"]
    )
    task = PipelineTask(
        json.dumps(order["spec"]),
        sources,
        spark_bridge.arrow_schema(output),
        read_settings(order["settings"].get, {}),
        order.get("tasks_sharing"),
        FileReporter(sources[0]),
    )
    return task, output


def _schema(fields: dict[str, Any]) -> StructType:
    from pyspark.sql.types import StructType

    return StructType.fromJson(fields)
