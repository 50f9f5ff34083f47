package org.apache.spark.sql.sparkext

import org.apache.spark.sql.types._

/** Which types can be keys and which can travel, by the names that Python's `plans/key_types.py` gives them. */
object KeyTypes {

  import Shared.formats

  private val Names = Shared("key_types").extract[Map[String, String]]

  /** The key type, or None where comparing bytes is not what Spark does, or where no kernel compares it. */
  def name(dataType: DataType): Option[String] = dataType match {
    case string: StringType if !string.supportsBinaryEquality => None
    case decimal: DecimalType => Some(s"$DecimalName(${decimal.precision},${decimal.scale})")
    case other => Names.get(other.getClass.getSimpleName.stripSuffix("$"))
  }

  /** Whether values are ordered as their bytes are. Strings of some collations are equal where their bytes are, but lesser ones have
    * no lesser bytes.
    */
  def isOrdered(dataType: DataType): Boolean = dataType match {
    case string: StringType => string.supportsBinaryOrdering
    case other => name(other).isDefined
  }

  /** The key type without the digits of decimals. */
  def family(dataType: DataType): Option[String] = dataType match {
    case _: DecimalType => Some(DecimalName)
    case other => name(other)
  }

  private val DecimalName = "decimal"

  /** Its class is of Spark 4.1 and later. */
  def isTime(dataType: DataType): Boolean = dataType.typeName.startsWith("time(")

  /** Whether values travel between Spark and Python as Arrow unchanged. pyarrow has no nulls that cannot be null: what Spark takes
    * for the elements of `array()`.
    */
  def travels(dataType: DataType): Boolean = dataType match {
    case ArrayType(NullType, false) | MapType(NullType, _, _) | MapType(_, NullType, false) => false
    case StructType(fields) if fields.exists(field => field.dataType == NullType && !field.nullable) => false
    case ArrayType(element, _) => travels(element)
    case MapType(key, value, _) => travels(key) && travels(value)
    case struct: StructType =>
      struct.fieldNames.distinct.length == struct.length && struct.fields.forall(field => travels(field.dataType))
    case _: StringType | NullType | VariantType => true
    case other => name(other).isDefined
  }
}
