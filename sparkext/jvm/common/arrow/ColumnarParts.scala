package org.apache.spark.sql.sparkext.arrow

import java.io.ByteArrayOutputStream

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.Using

import org.apache.arrow.vector.VectorSchemaRoot
import org.apache.arrow.vector.ipc.ArrowStreamWriter

import org.apache.spark.sql.sparkext.build_sides.BuildSidePublisher
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.ArrowUtils

/** Converts the columns of one partition to Arrow streams of one batch each, as Spark converts rows. */
private[sparkext] class ColumnarParts(schema: StructType, timeZone: String)
    extends (Iterator[ColumnsToArrow] => Iterator[BuildSidePublisher.ArrowPart])
    with Serializable {

  override def apply(parts: Iterator[ColumnsToArrow]): Iterator[BuildSidePublisher.ArrowPart] = parts.map { columns =>
    Using.Manager { use =>
      use(columns)
      val allocator = use(ArrowUtils.rootAllocator.newChildAllocator("columns of a build side", 0, Long.MaxValue))
      val root = use(VectorSchemaRoot.create(ArrowUtils.toArrowSchema(schema, timeZone, false, false), allocator))
      val streams = mutable.ArrayBuffer.empty[Array[Byte]]
      var total = 0L
      var rows = columns.fill(root.getFieldVectors.asScala.toSeq)
      while (rows > 0) {
        root.setRowCount(rows)
        streams += stream(root)
        total += rows
        rows = columns.fill(root.getFieldVectors.asScala.toSeq)
      }
      total -> streams.toArray
    }.get
  }

  private def stream(root: VectorSchemaRoot): Array[Byte] = {
    val bytes = new ByteArrayOutputStream(1 << 20)
    Using.resource(new ArrowStreamWriter(root, null, bytes)) { writer =>
      writer.start()
      writer.writeBatch()
      writer.end()
    }
    bytes.toByteArray
  }
}
