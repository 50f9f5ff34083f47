package org.apache.spark.sql.sparkext.shim

import org.apache.spark.scheduler.MapStatus
import org.apache.spark.storage.BlockManagerId

/** The output of a map task. Spark does not compare checksums of it in this version. */
trait MapStatusShim {
  def mapStatus(at: BlockManagerId, lengths: Array[Long], mapId: Long, checksum: Long): MapStatus =
    MapStatus(at, lengths, mapId)
}
