package org.apache.spark.sql.sparkext.build_sides

import java.lang.ref.Cleaner

import org.apache.spark.api.python.PythonBroadcast
import org.apache.spark.broadcast.Broadcast

/** A build side that every node can read: its rows as consecutive Arrow streams, in the broadcast's local file.
  *
  * `crc`: the CRC-32 of the file. Spark checks the data that it sends, but not the copies on the nodes' disks. `file`:
  * removes the file.
  */
case class PublishedBuildSide(
    broadcast: Broadcast[PythonBroadcast],
    rows: Long,
    bytes: Long,
    crc: Long,
    file: Cleaner.Cleanable) {

  /** To be called once, and only if no task has received the build side. */
  def release(): Unit = {
    broadcast.destroy()
    file.clean()
  }
}
