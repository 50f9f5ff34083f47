package org.apache.spark.sql.sparkext

import scala.util.Using

import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonAST.{JObject, JValue}
import org.json4s.jackson.JsonMethods.parse

/** The constants that Python and Scala share. They are written once, in Python, and the build writes them into the jar
  * (`sparkext/spark/jar.py`).
  */
object Shared {
  implicit val formats: Formats = DefaultFormats

  private val all: JValue = Using.resource(getClass.getResourceAsStream("/io/sparkext/shared.json"))(parse(_))

  /** The value with this name. */
  def apply(name: String): JValue = all \ name

  /** The fields of the object with this name, in their order. */
  def fields(name: String): Seq[(String, JValue)] = Shared(name) match {
    case JObject(fields) => fields
    case other => throw new IllegalStateException(s"$name: $other")
  }

  /** The version of the package that this jar belongs to. */
  val PackageVersion: String = Shared("version").extract[String]

  /** The least address space of a worker, in bytes. */
  val LeastAddressSpace: Long = Shared("least_address_space").extract[Long]
}
