package org.apache.spark.sql.sparkext.joins

import org.apache.spark.sql.sparkext.protocol.Shared
import org.apache.spark.sql.types._

/** The types that can be keys, and the types that can be sent to workers, by the names in Python's
  * `plans/expressions/key_types.py`.
  */
object KeyTypes {

  private val Names = Shared[Map[String, String]]("key_types")

  /** The key type. None if Spark does not compare the type by bytes, or if no kernel compares it. */
  def name(dataType: DataType): Option[String] = dataType match {
    case string: StringType if !string.supportsBinaryEquality => None
    case decimal: DecimalType => Some(s"$DecimalName(${decimal.precision},${decimal.scale})")
    case other => Names.get(other.getClass.getSimpleName.stripSuffix("$"))
  }

  /** Whether kernels order values as Spark does. With some collations, equal strings have equal bytes, but the order of
    * strings is not that of their bytes.
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

  /** Whether the type is TIME. Recognised by its name, because the class exists only from Spark 4.1 on. */
  def isTime(dataType: DataType): Boolean = dataType.typeName.startsWith("time(")

  /** Whether values can be sent between Spark and Python as Arrow unchanged. pyarrow has no null type that is not
    * nullable; Spark uses such a type for the elements of `array()`.
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
