package org.apache.spark.sql.sparkext

import org.apache.spark.OneToOneDependency
import org.apache.spark.rdd.RDD
import org.apache.spark.sql.catalyst.InternalRow

/** Blocks that no job has streamed yet: each job has a shuffle of its own, because a shuffle cannot be read twice, and
  * a plan may run twice.
  *
  * The code that starts a job reads the lineage first, in a thread of its own. Then Spark's scheduler reads it, in a
  * thread with a known name.
  */
private class FreshCells(@transient private val make: () => RDD[InternalRow], @transient private val begin: () => Unit)
    extends OneToOneDependency[InternalRow](null) {
  private var cells: RDD[InternalRow] = _
  @transient private var taken = false

  override def rdd: RDD[InternalRow] = synchronized {
    val scheduled = Thread.currentThread.getName == FreshCells.Scheduler
    if (make != null && (cells == null || taken && !scheduled)) {
      cells = make()
      taken = false
    }
    if (make != null && scheduled && !taken) {
      begin()
      taken = true
    }
    cells
  }
}

private object FreshCells {
  private val Scheduler = "dag-scheduler-event-loop"
}
