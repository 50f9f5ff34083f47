package org.example

import java.util

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.{Expressions, Transform}
import org.apache.spark.sql.connector.read._
import org.apache.spark.sql.connector.read.partitioning.{KeyGroupedPartitioning, Partitioning}
import org.apache.spark.sql.types.{LongType, StringType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.unsafe.types.UTF8String

/** A source whose partitions hold the rows of one key each, and say so. `keys`: each as often as it has partitions. */
class KeyedSource extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = KeyedSource.schema
  override def getTable(schema: StructType, partitioning: Array[Transform], properties: util.Map[String, String]): Table =
    new KeyedTable(properties.get("keys").split(",").map(_.toLong).toSeq, properties.get("label"))
}

object KeyedSource {
  val schema: StructType = new StructType().add("k", LongType).add("v", LongType).add("s", StringType)
  val Rows = 3
}

class KeyedTable(keys: Seq[Long], label: String) extends Table with SupportsRead {
  override def name(): String = s"keyed $label"
  override def schema(): StructType = KeyedSource.schema
  override def capabilities(): util.Set[TableCapability] = util.Set.of(TableCapability.BATCH_READ)
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () => new KeyedScan(keys, label)
}

class KeyedScan(keys: Seq[Long], label: String) extends Scan with Batch with SupportsReportPartitioning with SupportsReportStatistics {
  override def readSchema(): StructType = KeyedSource.schema
  override def toBatch: Batch = this
  override def outputPartitioning(): Partitioning =
    new KeyGroupedPartitioning(Array(Expressions.identity("k")), keys.distinct.size)
  override def planInputPartitions(): Array[InputPartition] =
    keys.zipWithIndex.map { case (key, number) => KeyedPartition(key, number, label) }.toArray
  override def createReaderFactory(): PartitionReaderFactory = new KeyedReaders
  override def estimateStatistics(): Statistics = new Statistics {
    override def sizeInBytes(): util.OptionalLong = util.OptionalLong.of(keys.size * 1000L)
    override def numRows(): util.OptionalLong = util.OptionalLong.of(keys.size * KeyedSource.Rows.toLong)
  }
}

case class KeyedPartition(key: Long, number: Int, label: String) extends HasPartitionKey {
  override def partitionKey(): InternalRow = InternalRow(key)
}

class KeyedReaders extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = {
    val KeyedPartition(key, number, label) = partition: @unchecked
    new PartitionReader[InternalRow] {
      private var row = -1
      override def next(): Boolean = { row += 1; row < KeyedSource.Rows }
      override def get(): InternalRow = InternalRow(key, number * 100L + row, UTF8String.fromString(s"$label $number.$row"))
      override def close(): Unit = ()
    }
  }
}
