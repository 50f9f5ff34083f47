package org.apache.spark.sql.sparkext

import scala.util.control.NonFatal

import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.expressions.{Left => _, Right => _, _}
import org.apache.spark.sql.catalyst.plans.logical.{Filter, LogicalPlan, Project}
import org.apache.spark.sql.catalyst.plans.physical.SinglePartition
import org.apache.spark.sql.catalyst.trees.TreeNodeTag
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.datasources.{FilePartition, FileScanRDD, HadoopFsRelation, LogicalRelation, PartitionedFile}
import org.apache.spark.sql.types.{DataType, StructType}

/** A Parquet scan that workers do themselves: which columns of which files, and which rows of them.
  *
  * Splits, their order and places are Spark's own. The first `outputs` of `columns` are what the scan emits, those behind
  * are there for the filter.
  */
case class FusedScan(
    columns: Seq[ScanColumn],
    outputs: Int,
    filter: Option[Expression],
    partitions: Seq[FilePartition],
    partitionSchema: StructType,
    buckets: Seq[JObject],
    calendars: JObject,
    caseSensitive: Boolean) {

  /** Without the keys of buckets. */
  override def toString: String = Redaction.redacted(described)

  /** Python's `ScanSpec`. */
  def spec: JValue =
    ("columns" -> columns.map(column => ("name" -> column.attribute.name) ~ ("partition" -> column.partition))) ~
      ("outputs" -> outputs) ~
      ("filter" -> filter.flatMap(WorkerEvaluator.Arrow.of(_, place).toOption)) ~
      ("case_sensitive" -> caseSensitive)

  /** What the scan reads, with the types that the query gives the columns. */
  def schema: StructType = SentColumns.of(columns.map(_.dataType))

  /** Python's `Split`s of one partition. */
  def splits(partition: FilePartition): JValue = JArray(partition.files.map(split).toList)

  /** All files, each as one split: a build side is read as a whole, and is the same however its files were to be split. */
  def files: Seq[JValue] =
    // A file that was asked for twice is read twice.
    partitions.flatMap(_.files).filter(_.start == 0L).sortBy(_.filePath.toString).map { file =>
      split(file.copy(length = Long.MaxValue))
    }

  private def split(file: PartitionedFile): JValue =
    ("path" -> FileStores.location(file.toPath)) ~
      ("start" -> file.start) ~
      ("length" -> file.length) ~
      ("values" -> partitionSchema.zipWithIndex.map { case (field, number) =>
        WorkerExpression.text(Literal(file.partitionValues.get(number, field.dataType), field.dataType))
          .getOrElse(throw new IllegalStateException(s"partition column ${field.name}: no value of ${field.dataType}"))
      })

  def described: String =
    s"fused ${columns.take(outputs).map(_.attribute.name).mkString("[", ", ", "]")}" +
      filter.map(condition => s" filter ${Wording.of(condition)}").getOrElse("")

  private def place(attribute: Attribute): ColumnRef =
    ColumnRef(
      0,
      columns.indexWhere(column => column.attribute.exprId == attribute.exprId && column.dataType == attribute.dataType))
}

/** A column of the files, or the partition value number `partition`, emitted as `dataType`. */
case class ScanColumn(attribute: Attribute, dataType: DataType, partition: Option[Int])

object FusedScan {

  /** The scan that `plan` is, under what only drops, renames or filters; or why workers cannot do it. */
  def of(plan: SparkPlan, settings: Settings): Either[String, FusedScan] =
    if (!settings.fusesScans) Left("disabled by spark.sparkext.scan.fused")
    else
      for {
        peeled <- peel(plan)
        _ <- ParquetFiles.relation(peeled.scan.relation)
        _ <- readable(peeled.scan)
        columns <- columnsOf(peeled)
        filter = peeled.filters.reduceOption(And)
        _ <- filter.flatMap(WorkerEvaluator.Arrow.untested).map(part => s"a filter that only Spark evaluates: $part").toLeft(())
        partitions <- partitionsOf(peeled.scan)
        buckets <- FileStores.buckets(partitions.flatMap(_.files).map(_.toPath), ParquetFiles.hadoopOf(peeled.scan.relation))
        _ <- ParquetFiles.check(peeled.scan.relation, columns.filter(_.partition.isEmpty).map(_.attribute), partitions)
      } yield FusedScan(
        columns,
        peeled.outputs.length,
        filter,
        partitions,
        peeled.scan.relation.partitionSchema,
        buckets,
        ParquetFiles.calendars(peeled.scan.relation),
        peeled.scan.conf.caseSensitiveAnalysis)

  /** The columns that workers will read for `plan` to emit `columns`; None where Spark will read, as far as can be told
    * before there is a physical plan.
    */
  def expected(plan: LogicalPlan, columns: Seq[Expression], settings: Settings): Option[AttributeSet] =
    if (!settings.fusesScans || columns.exists(Widened.unapply(_).isEmpty)) None
    else plan match {
      case Project(projected, child) => expected(child, projected.map(Expressions.unnamed), settings)
      case Filter(condition, child) if WorkerEvaluator.Arrow.tests(condition) =>
        expected(child, columns, settings).map(_ ++ condition.references)
      case LogicalRelation(files: HadoopFsRelation, _, _, _, _) =>
        val read = AttributeSet(columns)
        if (ParquetFiles.relation(files).isRight && read.forall(column => ParquetRules.isFlat(column.dataType))) Some(read)
        else None
      case _ => None
    }

  /** Whether the rows that workers will read come in the order of a column, as far as the files tell. */
  def isOrdered(plan: LogicalPlan, column: Attribute): Boolean = plan match {
    case Project(projected, child) =>
      projected.find(_.exprId == column.exprId).map(Expressions.unnamed).exists {
        case Widened(source) => isOrdered(child, source)
        case _ => false
      }
    case Filter(_, child) => isOrdered(child, column)
    case LogicalRelation(files: HadoopFsRelation, _, _, _, _) => ParquetFiles.isOrdered(files, column.name)
    case _ => false
  }

  /** `outputs` and `filters` in terms of what the scan emits. */
  private case class Peeled(scan: FileSourceScanExec, outputs: Seq[Expression], filters: Seq[Expression])

  private def peel(plan: SparkPlan): Either[String, Peeled] = plan match {
    case scan: FileSourceScanExec => Right(Peeled(scan, scan.output, Nil))
    case WholeStageCodegenExec(child) => peel(child)
    case InputAdapter(child) => peel(child)
    case ColumnarToRowExec(child) => peel(child)
    case FilterExec(condition, child) =>
      val parts = Trees.conjuncts(condition)
      if (parts.exists(Trees.isDeep)) Left("a filter nested too deeply")
      else peel(child).map { below =>
        val atScan = Expressions.replacing(AttributeMap(child.output.zip(below.outputs)))
        below.copy(filters = below.filters ++ parts.map(atScan))
      }
    case ProjectExec(columns, _) if columns.exists(Trees.isDeep) => Left("a column nested too deeply")
    case ProjectExec(columns, child) =>
      peel(child).flatMap { below =>
        val atScan = Expressions.replacing(AttributeMap(child.output.zip(below.outputs)))
        val outputs = columns.map(column => atScan(Expressions.unnamed(column)))
        outputs.find(Widened.unapply(_).isEmpty).map(computed => s"a column that Spark computes: ${Wording.of(computed)}")
          .toLeft(below.copy(outputs = outputs))
      }
    case other => Left(s"not a scan of files: ${other.nodeName}")
  }

  /** What is asked of the scan beside files and columns. */
  private def readable(scan: FileSourceScanExec): Either[String, Unit] =
    if (scan.fileConstantMetadataColumns.nonEmpty) Left("metadata columns of files")
    else if (scan.partitionFilters.exists(_.exists(_.isInstanceOf[PlanExpression[_]]))) {
      Left("partitions chosen at run time")
    } else if (scan.outputPartitioning == SinglePartition) Left("a scan in a single task")
    else Right(())

  private def columnsOf(peeled: Peeled): Either[String, Seq[ScanColumn]] = {
    val direct = AttributeSet(peeled.outputs.collect { case attribute: Attribute => attribute })
    val wanted = peeled.outputs ++ AttributeSet(peeled.filters).filterNot(direct.contains)
    val data = peeled.scan.requiredSchema.fieldNames
    val partition = peeled.scan.relation.partitionSchema.fieldNames
    val columns = wanted.map { expression =>
      val attribute = Widened.unapply(expression).get
      val value = Some(partition.indexOf(attribute.name)).filter(_ >= 0)
      if (value.isDefined || data.contains(attribute.name)) Right(ScanColumn(attribute, expression.dataType, value))
      else Left(s"column ${attribute.name}, which is not in the files")
    }
    columns.collectFirst { case Left(reason) => reason }.toLeft(columns.collect { case Right(column) => column })
  }

  /** What Spark has cut a scan into. To ask it sends Hadoop's settings to the executors, once for every copy of the scan: plans are
    * copied before they run, and each time that they are shown.
    */
  private case class Listed(scan: FileSourceScanExec, partitions: Seq[FilePartition])
  private val Found: TreeNodeTag[Listed] = TreeNodeTag[Listed]("sparkext.partitions")

  private def partitionsOf(scan: FileSourceScanExec): Either[String, Seq[FilePartition]] =
    scan.getTagValue(Found).filter(_.scan == scan).map(listed => Right(listed.partitions)).getOrElse {
      val listed = list(scan)
      listed.foreach(partitions => scan.setTagValue(Found, Listed(scan, partitions)))
      listed
    }

  private def list(scan: FileSourceScanExec): Either[String, Seq[FilePartition]] =
    try
      scan.inputRDD match {
        case files: FileScanRDD => Right(files.filePartitions)
        case other => Left(s"splits that are not files: $other")
      }
    catch { case NonFatal(problem) => Left(s"the files cannot be listed: $problem") }
}
