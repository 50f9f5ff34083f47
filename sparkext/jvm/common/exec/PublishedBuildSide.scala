package org.apache.spark.sql.sparkext

import java.lang.ref.Cleaner

import org.apache.spark.api.python.PythonBroadcast
import org.apache.spark.broadcast.Broadcast

/** A build side that every node can read: its rows as Arrow streams, one after the other, in the broadcast's local file.
  *
  * `crc`: the CRC-32 of the file. Spark checks what it sends, but not what lies on a node's disk. `file`: removes it.
  */
case class PublishedBuildSide(broadcast: Broadcast[PythonBroadcast], rows: Long, bytes: Long, crc: Long, file: Cleaner.Cleanable) {

  /** To be called once, where no task has been told of it. */
  def release(): Unit = {
    broadcast.destroy()
    file.clean()
  }
}
