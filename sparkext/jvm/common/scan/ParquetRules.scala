package org.apache.spark.sql.sparkext.scan

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.parquet.hadoop.metadata.FileMetaData
import org.apache.parquet.hadoop.metadata.FileMetaData.EncryptionType
import org.apache.parquet.schema.{LogicalTypeAnnotation, MessageType, Type}
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName

import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.execution.datasources.DataSourceUtils
import org.apache.spark.sql.execution.datasources.parquet.{ParquetOptions, ParquetToSparkSchemaConverter}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.sparkext.joins.KeyTypes
import org.apache.spark.sql.sparkext.protocol.{Reason, Shared}
import org.apache.spark.sql.types._

/** Decides which columns of files contain, by the plain meaning of the format, the values that Spark's own reader
  * returns. Python's `parquet/rules.py` applies the same rules if nothing is planned.
  */
private class ParquetRules(table: FileTable, columns: Seq[(Attribute, StoredColumn)], conf: SQLConf) {
  import ParquetRules._

  private val options = new ParquetOptions(table.options, conf)
  private val converter = new ParquetToSparkSchemaConverter(conf)

  /** The reason why a column cannot be read, whatever the files contain. */
  def column(attribute: Attribute): Option[String] =
    if (isFlat(attribute.dataType)) None
    else Some(Reason("COLUMN_TYPE", attribute.name, attribute.dataType.simpleString))

  def file(footer: FileMetaData): Option[String] =
    if (footer.getEncryptionType != EncryptionType.UNENCRYPTED) Some(Reason("FILE_ENCRYPTED"))
    else columns.iterator.flatMap { case (attribute, stored) => inFile(attribute, stored, footer) }.nextOption()

  private def inFile(attribute: Attribute, stored: StoredColumn, footer: FileMetaData): Option[String] = {
    val found = stored.in(footer.getSchema, conf.caseSensitiveAnalysis)
    if (found.length > 1) Some(Reason("FILE_COLUMN_AMBIGUOUS", attribute.name))
    else if (found.isEmpty && table.isRequired(attribute)) Some(Reason("FILE_WITHOUT_COLUMN", attribute.name))
    else stored match {
      case NamedColumn(name) if found.exists(field => field.getName != name && !isAscii(field.getName + name)) =>
        // Java and Python differ in which letters are equal if case is ignored.
        Some(Reason("FILE_COLUMN_CASE", attribute.name))
      case NumberedColumn(_) if footer.getSchema.getFields.asScala.forall(_.getId == null) =>
        Some(Reason("FILE_WITHOUT_IDS"))
      case _ => found.headOption.flatMap(misread(_, attribute, footer))
    }
  }

  private def misread(field: Type, attribute: Attribute, footer: FileMetaData): Option[String] = {
    lazy val sparks = Try(converter.convert(new MessageType("file", field)).head.dataType).toOption
    if (!field.isPrimitive || field.isRepetition(Type.Repetition.REPEATED))
      Some(Reason("FILE_COLUMN_NESTED", attribute.name))
    else if (!sparks.contains(attribute.dataType)) {
      Some(Reason(
        "FILE_COLUMN_TYPE",
        attribute.name,
        sparks.map(other => s"type ${other.simpleString}").getOrElse("no type that Spark reads")))
    } else if (!isPlain(field, attribute.dataType)) Some(Reason("FILE_COLUMN_FORM", attribute.name, field))
    else if (isRebased(field, attribute.dataType, footer)) Some(Reason("FILE_COLUMN_CALENDAR", attribute.name))
    else None
  }

  private def isRebased(field: Type, dataType: DataType, footer: FileMetaData): Boolean = {
    val known = (key: String) => footer.getKeyValueMetaData.get(key)
    val spec = dataType match {
      case TimestampType if isInt96(field) =>
        Some(DataSourceUtils.int96RebaseSpec(known, options.int96RebaseModeInRead))
      case DateType | TimestampType => Some(DataSourceUtils.datetimeRebaseSpec(known, options.datetimeRebaseModeInRead))
      case _ => None
    }
    spec.exists(spec => !isCorrected(spec.mode.toString))
  }
}

private object ParquetRules {
  private val StoredTypes = Shared[Map[String, Map[String, String]]]("parquet_types")
  private val ReadTypes = StoredTypes.values.flatMap(_.values).toSet
  private val Timestamps = Seq(TimestampType, TimestampNTZType).flatMap(KeyTypes.name(_)).toSet
  private val MostDecimalBytes = Shared[Int]("most_decimal_bytes")

  /** Whether Arrow reads the stored form as the values that Spark reads. */
  private def isPlain(field: Type, dataType: DataType): Boolean = {
    val stored = field.asPrimitiveType
    val physical = stored.getPrimitiveTypeName match {
      case PrimitiveTypeName.BINARY => "BYTE_ARRAY" // as the format calls it
      case other => other.name
    }
    val logical = Option(field.getLogicalTypeAnnotation).fold("") {
      case _: LogicalTypeAnnotation.DecimalLogicalTypeAnnotation => "DECIMAL" // of any precision
      case other => other.toString
    }
    val plain = StoredTypes.get(physical).flatMap(_.get(logical))
    val same = dataType match {
      case TimestampType | TimestampNTZType => plain.exists(Timestamps) // a session may read local ones as instants
      case other => plain.isDefined && plain == KeyTypes.family(other)
    }
    same && stored.getTypeLength <= MostDecimalBytes
  }

  /** Whether dates and timestamps are read without rebasing. */
  def isCorrected(rebaseMode: String): Boolean = rebaseMode == "CORRECTED"

  private def isAscii(text: String): Boolean = text.forall(_ < 128)

  private def isInt96(field: Type): Boolean = field.asPrimitiveType.getPrimitiveTypeName == PrimitiveTypeName.INT96

  /** Whether values of the type are stored in one column of a file, without nesting. */
  def isFlat(dataType: DataType): Boolean = dataType match {
    case text: StringType => text.isUTF8BinaryCollation
    case other => KeyTypes.family(other).exists(ReadTypes)
  }
}
