package org.apache.spark.sql.sparkext.python

import scala.util.matching.Regex

import org.apache.arrow.vector.{BaseFixedWidthVector, DecimalVector, FieldVector, VarCharVector}
import org.json4s.JsonAST.JObject
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.TaskContext
import org.apache.spark.api.python.PythonException
import org.apache.spark.sql.catalyst.expressions.{EvalMode, Literal}
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.sparkext.expressions.{Arithmetic, PairCondition}
import org.apache.spark.sql.sparkext.joins.KeyTypes
import org.apache.spark.sql.sparkext.protocol.Reason
import org.apache.spark.sql.sparkext.shuffle.FetchedBlocks
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarBatch}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** The expressions that may fail: the condition of each join, the filter after the joins, and each expression of the
  * groups; `having` and `results`, which derive a build side from the pipeline's output; and the formulas of each
  * derived build side and of the `source`.
  */
case class Formulas(
    joins: Seq[Option[PairCondition]],
    filter: Option[PairCondition],
    groups: Seq[Option[PairCondition]],
    having: Option[PairCondition] = None,
    results: Seq[Option[PairCondition]] = Nil,
    builds: Seq[Option[Formulas]] = Nil,
    source: Option[Formulas] = None) {

  /** The formulas of the build side at a path of join numbers, which start at 1; 0 is the source. */
  def below(path: List[Int]): Option[Formulas] = path match {
    case 0 :: rest => source.flatMap(_.below(rest))
    case number :: rest => builds.lift(number - 1).flatten.flatMap(_.below(rest))
    case Nil => Some(this)
  }
}

/** The output of workers, batch by batch, as columns of the declared types.
  *
  * A batch is valid until the next one is requested. If workers fail to read a file, to compute one of the `formulas`,
  * or to sum integers, the error is the one that Spark itself raises.
  */
class PythonBatches(batches: Iterator[ColumnarBatch], declared: StructType, formulas: Formulas)
    extends Iterator[ColumnarBatch] {
  override def hasNext: Boolean = translated(batches.hasNext)

  override def next(): ColumnarBatch = {
    val batch = translated(batches.next())
    // All columns of a row are received as one struct.
    val row = batch.column(0).asInstanceOf[ArrowColumnVector]
    val columns = declared.indices.map(number => row.getChild(number))
    val types = columns.map(_.dataType)
    if (!types.zip(declared).forall { case (received, field) => PythonBatches.isSpelledAs(received, field.dataType) }) {
      throw new IllegalStateException(Reason("UNEXPECTED_COLUMNS", types, declared.map(_.dataType)))
    }
    new ColumnarBatch(columns.map(PythonBatches.quick).toArray, batch.numRows)
  }

  private def translated[T](step: => T): T =
    try step
    catch {
      case failure: PythonException =>
        throw PythonBatches.ofBlocks(failure).getOrElse(PythonBatches.sparks(failure, formulas))
    }
}

object PythonBatches {

  /** The message of Python's `FileReadError`. */
  private val Unreadable: Regex = """FileReadError: cannot read ['"](.*)['"]: (no such file)?""".r

  /** The messages of Python's `ConditionError`: the path of the build side, the name of the expression, and the values
    * of its columns.
    */
  private val Failed: Regex =
    """ConditionError: ((?:build side \d+: )*)(.*) (?:fails on (\{.*\})|overflows in a group)""".r
  private val Number: Regex = """\d+""".r
  private val OfJoin: Regex = """the condition of join (\d+)""".r
  private val OfGroups: Regex = """expression (\d+) of the groups""".r
  private val OfResult: Regex = """column (\d+) of the result""".r

  /** The message of Python's `BlockError`. */
  private val Damaged: Regex = """BlockError: blocks at bytes (\d+) to \d+ of ['"](.*)['"] cannot be read: (.*)""".r

  /** A failure that makes Spark rerun the map task whose blocks cannot be read. */
  private def ofBlocks(failure: PythonException): Option[Throwable] = for {
    found <- Damaged.findFirstMatchIn(failure.getMessage)
    task <- Option(TaskContext.get())
    fetched <- FetchedBlocks.failure(task, found.group(2), found.group(1).toLong, found.group(3))
  } yield fetched

  private def sparks(failure: PythonException, formulas: Formulas): Throwable = {
    val message = failure.getMessage
    Unreadable.findFirstMatchIn(message).map { found =>
      val path = found.group(1)
      // With Spark's stack frames for Python, PySpark 4.1 would show users this cause instead of the error.
      failure.setStackTrace(
        failure.getStackTrace.filterNot(_.getClassName.startsWith("org.apache.spark.sql.execution.python")))
      if (found.group(2) == null) QueryExecutionErrors.cannotReadFilesError(failure, path)
      else QueryExecutionErrors.fileNotExistError(path, failure)
    }.orElse {
      for {
        found <- Failed.findFirstMatchIn(message)
        below <- formulas.below(Number.findAllIn(found.group(1)).map(_.toInt).toList)
        formula <- found.group(2) match {
          case OfJoin(number) => below.joins(number.toInt - 1)
          case "the filter" => below.filter
          case OfGroups(number) => below.groups(number.toInt)
          case "the filter of the result" => below.having
          case OfResult(number) => below.results(number.toInt)
          case "a sum of integers" => Some(PairCondition(SumOverflow, Nil))
          case _ => None
        }
      } yield formula.error(Option(found.group(3)).map(parse(_).asInstanceOf[JObject]).getOrElse(JObject()))
    }.getOrElse(failure)
  }

  /** An expression that raises Spark's error for an overflowing sum of integers. */
  private val SumOverflow = Arithmetic.plus(Literal(Long.MaxValue), Literal(1L), EvalMode.ANSI)

  /** Whether `told`, the type that Spark derives from an Arrow type, matches `declared`. Arrow has one type for the
    * strings of all collations, one for all fields of intervals, and one for times of all precisions.
    */
  private def isSpelledAs(told: DataType, declared: DataType): Boolean = (told, declared) match {
    case (_: StringType, _: StringType) | (_: DayTimeIntervalType, _: DayTimeIntervalType) => true
    case (ArrayType(one, someNull), ArrayType(other, otherNull)) => someNull == otherNull && isSpelledAs(one, other)
    case (MapType(key, value, someNull), MapType(otherKey, otherValue, otherNull)) =>
      someNull == otherNull && isSpelledAs(key, otherKey) && isSpelledAs(value, otherValue)
    case (StructType(fields), StructType(others)) =>
      fields.length == others.length && fields.zip(others).forall { case (field, other) =>
        field.name == other.name && field.nullable == other.nullable && isSpelledAs(field.dataType, other.dataType)
      }
    case _ => told == declared || (KeyTypes.isTime(told) && KeyTypes.isTime(declared))
  }

  /** The same values, read from their buffers: Arrow's own accessors check bounds and nulls for every value. */
  private[sparkext] def quick(column: ArrowColumnVector): ColumnVector =
    (column.dataType, column.getValueVector) match {
      case (decimal: DecimalType, vector: DecimalVector) if decimal.precision <= Decimal.MAX_LONG_DIGITS =>
        new ShortDecimals(vector)
      case (_: DecimalType, vector: DecimalVector) => new LongDecimals(vector)
      case (_: StringType, vector: VarCharVector) => new Texts(vector)
      case (dataType, vector: BaseFixedWidthVector) if isPlain(dataType) => new FixedWidth(vector)
      case _ => column
    }

  private def isPlain(dataType: DataType): Boolean = dataType match {
    case _: IntegralType | FloatType | DoubleType | DateType | TimestampType | TimestampNTZType => true
    case _ => false
  }
}

/** An Arrow column that is read by the addresses of its buffers, which are valid as long as its batch. */
private abstract class DirectColumn(vector: FieldVector) extends ArrowColumnVector(vector) {
  private val validity = vector.getValidityBuffer.memoryAddress
  private val someNull = vector.getNullCount > 0

  override def hasNull: Boolean = someNull
  override def isNullAt(row: Int): Boolean =
    someNull && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0
}

/** Numbers, dates and timestamps. */
private final class FixedWidth(vector: BaseFixedWidthVector) extends DirectColumn(vector) {
  private val values = vector.getDataBuffer.memoryAddress

  override def getByte(row: Int): Byte = Platform.getByte(null, values + row)
  override def getShort(row: Int): Short = Platform.getShort(null, values + row.toLong * java.lang.Short.BYTES)
  override def getInt(row: Int): Int = Platform.getInt(null, values + row.toLong * Integer.BYTES)
  override def getLong(row: Int): Long = Platform.getLong(null, values + row.toLong * java.lang.Long.BYTES)
  override def getFloat(row: Int): Float = Platform.getFloat(null, values + row.toLong * java.lang.Float.BYTES)
  override def getDouble(row: Int): Double = Platform.getDouble(null, values + row.toLong * java.lang.Double.BYTES)
}

private final class Texts(vector: VarCharVector) extends DirectColumn(vector) {
  private val offsets = vector.getOffsetBuffer.memoryAddress
  private val values = vector.getDataBuffer.memoryAddress

  override def getUTF8String(row: Int): UTF8String =
    if (isNullAt(row)) null
    else {
      val at = offsets + row.toLong * Integer.BYTES
      val start = Platform.getInt(null, at)
      UTF8String.fromAddress(null, values + start, Platform.getInt(null, at + Integer.BYTES) - start)
    }
}

/** Decimals of up to 18 digits. The lower half of Arrow's 16 bytes holds the whole value, so no `BigDecimal` is created
  * for it.
  */
private final class ShortDecimals(vector: DecimalVector) extends DirectColumn(vector) {
  private val values = vector.getDataBuffer.memoryAddress

  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null
    else Decimal.createUnsafe(Platform.getLong(null, values + row.toLong * DecimalVector.TYPE_WIDTH), precision, scale)
}

/** Decimals of more than 18 digits. Most values, sums above all, have few digits. Only the other values are read from
  * all 16 bytes, as `BigDecimal`s.
  */
private final class LongDecimals(vector: DecimalVector) extends DirectColumn(vector) {
  private val values = vector.getDataBuffer.memoryAddress

  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal =
    if (isNullAt(row)) null
    else {
      val at = values + row.toLong * DecimalVector.TYPE_WIDTH
      val (low, high) = (Platform.getLong(null, at), Platform.getLong(null, at + java.lang.Long.BYTES))
      if (high == low >> 63 && low >= -LongDecimals.MostCompact && low <= LongDecimals.MostCompact)
        Decimal.createUnsafe(low, precision, scale)
      else super.getDecimal(row, precision, scale)
    }
}

private object LongDecimals {

  /** The largest unscaled value that Spark stores as a long instead of a `BigDecimal`. */
  private val MostCompact = 999999999999999999L
}
