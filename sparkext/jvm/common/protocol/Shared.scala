package org.apache.spark.sql.sparkext.protocol

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

  def json(name: String): JValue = all \ name

  /** The constant with this name, in the Scala type `T`. */
  def apply[T: Manifest](name: String): T = json(name).extract[T]

  /** The fields of the object with this name, in their order, with values in the Scala type `T`. */
  def fields[T: Manifest](name: String): Seq[(String, T)] =
    json(name).asInstanceOf[JObject].obj.map { case (field, value) => field -> value.extract[T] }

  /** The version of the package that this jar belongs to. */
  val PackageVersion: String = Shared[String]("version")

  /** The least address space of a worker, in bytes. */
  val LeastAddressSpace: Long = Shared[Long]("least_address_space")
}
