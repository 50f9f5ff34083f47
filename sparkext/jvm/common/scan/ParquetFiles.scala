package org.apache.spark.sql.sparkext

import java.util.Locale
import java.util.concurrent.{Callable, ExecutionException, Executors, ThreadFactory}

import scala.jdk.CollectionConverters._
import scala.jdk.OptionConverters._
import scala.util.{Try, Using}
import scala.util.control.NonFatal

import com.google.common.cache.CacheBuilder
import org.apache.hadoop.conf.Configuration
import org.apache.parquet.column.statistics.{IntStatistics, LongStatistics, Statistics}
import org.apache.parquet.hadoop.ParquetFileReader
import org.apache.parquet.hadoop.metadata.{BlockMetaData, FileMetaData}
import org.apache.parquet.hadoop.metadata.FileMetaData.EncryptionType
import org.apache.parquet.hadoop.util.HadoopInputFile
import org.apache.parquet.schema.{LogicalTypeAnnotation, MessageType, Type}
import org.apache.parquet.schema.PrimitiveType.PrimitiveTypeName
import org.json4s.JsonAST.JObject
import org.json4s.JsonDSL._

import org.apache.spark.sql.catalyst.FileSourceOptions
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.execution.datasources.{DataSourceUtils, FilePartition, HadoopFsRelation}
import org.apache.spark.sql.execution.datasources.parquet.{ParquetFileFormat, ParquetOptions, ParquetToSparkSchemaConverter}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/** Which Parquet files workers read as Spark would: what its reader does beyond the plain meaning of a file is left to it. */
object ParquetFiles {
  import Shared.formats

  private val Readers = 16
  private val KeptFooters = 4096L
  private val Counted = 256
  private val LongText = 256L
  private val ExistsDefault = "EXISTS_DEFAULT"
  private val StoredTypes = Shared("parquet_types").extract[Map[String, Map[String, String]]]
  private val ReadTypes = StoredTypes.values.flatMap(_.values).toSet
  private val Timestamps = Seq(TimestampType, TimestampNTZType).flatMap(KeyTypes.name(_)).toSet
  private val MostDecimalBytes = Shared("most_decimal_bytes").extract[Int]

  /** Whether the relation is one of plain Parquet files, read with no option that changes what they hold. */
  def relation(relation: HadoopFsRelation): Either[String, Unit] = {
    val conf = SQLConf.get
    val options = new FileSourceOptions(CaseInsensitiveMap(relation.options))
    // Subclasses (of table formats) give a file another meaning.
    if (relation.fileFormat.getClass != classOf[ParquetFileFormat]) Left(s"not a Parquet scan: ${relation.fileFormat}")
    else if (options.ignoreCorruptFiles || options.ignoreMissingFiles) Left("corrupt or missing files are to be ignored")
    else if (conf.parquetFieldIdReadEnabled) Left("columns are matched by field id")
    else if (conf.isParquetINT96TimestampConversion) Left("spark.sql.parquet.int96TimestampConversion is true")
    else if (relation.sparkSession.sessionState.conf.getConfString("parquet.crypto.factory.class", "").nonEmpty) {
      Left("files may be encrypted")
    } else relation.partitionSchema.find(field => !isText(field.dataType)).map { field =>
      s"partition column ${field.name} of type ${field.dataType.simpleString}"
    }.toLeft(())
  }

  /** Whether every file has these columns in the types that the query takes them to have, or not at all. */
  def check(relation: HadoopFsRelation, columns: Seq[Attribute], partitions: Seq[FilePartition]): Either[String, Unit] = {
    val files = partitions.flatMap(_.files).distinctBy(_.filePath)
      .map(file => FileStores.identity(file.toPath, file.modificationTime, file.fileSize))
    val rules = new Rules(relation, columns, SQLConf.get)
    for {
      _ <- columns.flatMap(rules.column).headOption.toLeft(())
      footers <- read(files, relation)
      _ <- files.zip(footers).flatMap { case (file, footer) => rules.file(footer.meta).map(problem => s"${file.path}: $problem") }
        .headOption.toLeft(())
    } yield ()
  }

  /** How many rows the relation's files hold: counted in the footers of some, and reckoned by size for the others. */
  def rows(relation: HadoopFsRelation): Option[Double] =
    if (relation.fileFormat.getClass != classOf[ParquetFileFormat]) None
    else Try(relation.location.listFiles(Nil, Nil).flatMap(_.files)).toOption.flatMap { found =>
      val files = found.take(Counted).map(file => FileStores.identity(file.getPath, file.getModificationTime, file.getLen))
      val bytes = math.max(1L, files.map(_.size).sum).toDouble
      read(files, relation).toOption.map(_.map(_.rows).sum * math.max(1.0, found.map(_.getLen).sum / bytes))
    }

  /** How many rows these files hold, and bytes the values of each column of texts in them; None where files do not say. */
  def held(relation: HadoopFsRelation, columns: Seq[String], partitions: Seq[FilePartition]): Option[(Long, Map[String, Long])] = {
    val whole = partitions.flatMap(_.files).filter(_.start == 0L)
    read(whole.map(file => FileStores.identity(file.toPath, file.modificationTime, file.fileSize)), relation).toOption.map { footers =>
      footers.map(_.rows).sum -> columns.map(column => column -> footers.map(_.texts.getOrElse(lower(column), 0L)).sum).toMap
    }
  }

  /** Whether the rows of each file come in the order of a column, as far as the bounds of its row groups tell. */
  def isOrdered(relation: HadoopFsRelation, column: String): Boolean =
    relation.fileFormat.getClass == classOf[ParquetFileFormat] && {
      val files = Try(relation.location.listFiles(Nil, Nil).flatMap(_.files)).getOrElse(Nil)
      val listed = files.take(Counted).map(file => FileStores.identity(file.getPath, file.getModificationTime, file.getLen))
      listed.nonEmpty && read(listed, relation).exists(_.forall(_.ordered.contains(column)))
    }

  /** Python's `Calendars`: the files may be others by the time that workers read them. */
  def calendars(relation: HadoopFsRelation): JObject = {
    val options = new ParquetOptions(relation.options, SQLConf.get)
    ("datetime" -> isPlain(options.datetimeRebaseModeInRead)) ~ ("int96" -> isPlain(options.int96RebaseModeInRead))
  }

  private def isPlain(rebaseMode: String): Boolean = rebaseMode == "CORRECTED"

  private class Rules(relation: HadoopFsRelation, columns: Seq[Attribute], conf: SQLConf) {
    private val options = new ParquetOptions(relation.options, conf)
    private val converter = new ParquetToSparkSchemaConverter(conf)

    /** What keeps a column from being read, whatever the files hold. */
    def column(attribute: Attribute): Option[String] =
      if (!isFlat(attribute.dataType)) Some(s"column ${attribute.name} of type ${attribute.dataType.simpleString}")
      else if (relation.dataSchema.exists(field => field.name == attribute.name && field.metadata.contains(ExistsDefault))) {
        Some(s"column ${attribute.name} has a default for files that lack it")
      } else None

    def file(footer: FileMetaData): Option[String] =
      if (footer.getEncryptionType != EncryptionType.UNENCRYPTED) Some("is encrypted")
      else columns.iterator.flatMap(inFile(_, footer)).nextOption()

    private def inFile(attribute: Attribute, footer: FileMetaData): Option[String] = {
      val found = footer.getSchema.getFields.asScala.filter { field =>
        if (conf.caseSensitiveAnalysis) field.getName == attribute.name else field.getName.equalsIgnoreCase(attribute.name)
      }
      if (found.length > 1) Some(s"has several columns ${attribute.name}")
      else if (found.exists(field => field.getName != attribute.name && !isAscii(field.getName + attribute.name))) {
        // Java and Python differ in which letters are the same.
        Some(s"has column ${attribute.name} in other letters")
      } else found.headOption.flatMap(misread(_, attribute, footer))
    }

    private def misread(field: Type, attribute: Attribute, footer: FileMetaData): Option[String] = {
      lazy val sparks = Try(converter.convert(new MessageType("file", field)).head.dataType).toOption
      if (!field.isPrimitive || field.isRepetition(Type.Repetition.REPEATED)) Some(s"column ${attribute.name} is nested")
      else if (!sparks.contains(attribute.dataType)) {
        Some(s"column ${attribute.name} is of ${sparks.map(other => s"type ${other.simpleString}").getOrElse("no type that Spark reads")}")
      }
      else if (!isPlain(field, attribute.dataType)) Some(s"column ${attribute.name} is stored as $field")
      else if (isRebased(field, attribute.dataType, footer)) Some(s"column ${attribute.name} is of another calendar")
      else None
    }

    private def isRebased(field: Type, dataType: DataType, footer: FileMetaData): Boolean = {
      val known = (key: String) => footer.getKeyValueMetaData.get(key)
      val spec = dataType match {
        case TimestampType if isInt96(field) => Some(DataSourceUtils.int96RebaseSpec(known, options.int96RebaseModeInRead))
        case DateType | TimestampType => Some(DataSourceUtils.datetimeRebaseSpec(known, options.datetimeRebaseModeInRead))
        case _ => None
      }
      spec.exists(spec => !isPlain(spec.mode.toString))
    }
  }

  /** Whether Arrow reads the stored form as the values that Spark reads. */
  private def isPlain(field: Type, dataType: DataType): Boolean = {
    val stored = field.asPrimitiveType
    val physical = stored.getPrimitiveTypeName match {
      case PrimitiveTypeName.BINARY => "BYTE_ARRAY" // as the format calls it
      case other => other.name
    }
    val logical = Option(field.getLogicalTypeAnnotation).fold("") {
      case _: LogicalTypeAnnotation.DecimalLogicalTypeAnnotation => "DECIMAL" // of any digits
      case other => other.toString
    }
    val plain = StoredTypes.get(physical).flatMap(_.get(logical))
    val same = dataType match {
      case TimestampType | TimestampNTZType => plain.exists(Timestamps) // local ones are instants where a session says so
      case other => plain.isDefined && plain == KeyTypes.family(other)
    }
    same && stored.getTypeLength <= MostDecimalBytes
  }

  private def isAscii(text: String): Boolean = text.forall(_ < 128)

  private def isInt96(field: Type): Boolean = field.asPrimitiveType.getPrimitiveTypeName == PrimitiveTypeName.INT96

  /** Whether values of the type lie in one column of a file, each by itself. */
  def isFlat(dataType: DataType): Boolean = dataType match {
    case text: StringType => text.isUTF8BinaryCollation
    case other => KeyTypes.family(other).exists(ReadTypes)
  }

  /** Whether values of the type travel as text. */
  private def isText(dataType: DataType): Boolean = isFlat(dataType) && (dataType match {
    case FloatType | DoubleType | BinaryType => false
    case _ => true
  })

  /** What a file says of itself, how many rows it has, which columns its row groups are in the order of, and how many bytes the
    * values of columns of texts take, by their names in small letters.
    */
  private case class Footer(meta: FileMetaData, rows: Long, ordered: Set[String], texts: Map[String, Long])

  private val footers = CacheBuilder.newBuilder().maximumSize(KeptFooters).build[FileIdentity, Footer]()

  private val readers = Executors.newFixedThreadPool(
    Readers,
    new ThreadFactory {
      override def newThread(task: Runnable): Thread = {
        val thread = new Thread(task, "sparkext-footers")
        thread.setDaemon(true)
        thread
      }
    })

  /** Hadoop's settings with which Spark reads the relation's files. */
  def hadoopOf(relation: HadoopFsRelation): Configuration =
    relation.sparkSession.sessionState.newHadoopConfWithOptions(relation.options)

  private def read(files: Seq[FileIdentity], relation: HadoopFsRelation): Either[String, Seq[Footer]] = {
    lazy val hadoop = hadoopOf(relation) // takes longer than to look at a hundred footers that are kept
    try {
      val found = files.map { file =>
        Option(footers.getIfPresent(file)).map(() => _).getOrElse {
          val conf = hadoop
          val task = readers.submit(new Callable[Footer] {
            override def call(): Footer = footers.get(file, () => footer(file, conf))
          })
          () => task.get()
        }
      }
      Right(found.map(_()))
    } catch {
      case failed: ExecutionException => Left(s"a footer cannot be read: ${failed.getCause}")
      case NonFatal(problem) => Left(s"a footer cannot be read: $problem")
    }
  }

  private def footer(file: FileIdentity, hadoop: Configuration): Footer =
    Using.resource(ParquetFileReader.open(HadoopInputFile.fromPath(file.path, hadoop))) { reader =>
      val rowGroups = reader.getRowGroups.asScala.toSeq
      Footer(reader.getFooter.getFileMetaData, reader.getRecordCount, ordered(rowGroups), texts(rowGroups))
    }

  /** Where a writer has not said how many bytes the values take (those of dictionaries take less room), they are taken for long. */
  private def texts(rowGroups: Seq[BlockMetaData]): Map[String, Long] =
    rowGroups.flatMap(_.getColumns.asScala).filter(_.getPrimitiveType.getPrimitiveTypeName == PrimitiveTypeName.BINARY)
      .groupMapReduce(chunk => lower(chunk.getPath.toDotString)) { chunk =>
        val told = Option(chunk.getSizeStatistics).filter(_.isValid).flatMap(sizes => sizes.getUnencodedByteArrayDataBytes.toScala)
        told.map(_.longValue).getOrElse(math.max(chunk.getTotalUncompressedSize, chunk.getValueCount * LongText))
      }(_ + _)

  private def lower(name: String): String = name.toLowerCase(Locale.ROOT)

  /** The integer columns of which every row group begins where the one before it ends, or later. */
  private def ordered(rowGroups: Seq[BlockMetaData]): Set[String] =
    if (rowGroups.length < 2) Set.empty
    else {
      val columns = rowGroups.map(_.getColumns.asScala.toSeq)
      columns.head.indices.filter { number =>
        val bounds = columns.map(group => group.lift(number).map(_.getStatistics).flatMap(range))
        bounds.forall(_.isDefined) && bounds.flatten.sliding(2).forall { pair => pair.head._2 <= pair.last._1 }
      }.map(number => columns.head(number).getPath.toDotString).toSet
    }

  private def range(statistics: Statistics[_]): Option[(Long, Long)] = statistics match {
    case ints: IntStatistics if ints.hasNonNullValue => Some((ints.getMin.toLong, ints.getMax.toLong))
    case longs: LongStatistics if longs.hasNonNullValue => Some((longs.getMin, longs.getMax))
    case _ => None
  }
}
