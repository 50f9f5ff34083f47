package org.apache.spark.sql.sparkext.shuffle

import org.apache.spark.OneToOneDependency
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow

/** A dependency on blocks that creates a new shuffle for each job, because a streamed shuffle cannot be read twice, but a
  * plan may run twice.
  *
  * The thread that starts a job reads the lineage first. Then Spark's scheduler reads it, in a thread with a known
  * name. A read by another thread after that therefore belongs to a new job.
  */
private class FreshBlocks(@transient private val make: () => RDD[InternalRow], @transient private val begin: () => Unit)
    extends OneToOneDependency[InternalRow](null) {
  private var blocks: RDD[InternalRow] = _
  @transient private var taken = false

  override def rdd: RDD[InternalRow] = synchronized {
    val scheduled = Thread.currentThread.getName == FreshBlocks.Scheduler
    if (make != null && (blocks == null || taken && !scheduled)) {
      blocks = make()
      taken = false
    }
    if (make != null && scheduled && !taken) {
      begin()
      taken = true
    }
    blocks
  }
}

private object FreshBlocks {
  private val Scheduler = "dag-scheduler-event-loop"
}
