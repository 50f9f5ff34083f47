package org.apache.spark.sql.sparkext.scan

import java.util.Locale

import scala.util.matching.Regex

import org.apache.hadoop.conf.Configuration
import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import org.apache.spark.sql.sparkext.protocol.{Reason, Shared}

/** The connector's settings for one bucket. */
class S3Settings(bucketName: String, hadoop: Configuration) {
  import S3Settings._

  private def setting(name: String): Option[String] = first(name, hadoop.get)

  private def first(name: String, read: String => String): Option[String] =
    Seq(s"fs.s3a.bucket.$bucketName.$name", s"fs.s3a.$name").flatMap(key => Option(read(key)).map(_.trim)).find(
      _.nonEmpty)

  /** Like Hadoop, uses the default for a value that is neither true nor false. */
  private def enabled(name: String, default: Boolean): Boolean =
    setting(name).flatMap(_.toLowerCase(Locale.ROOT).toBooleanOption).getOrElse(default)

  /** A secret from the settings, or from a credential store if there is one. */
  private def secret(name: String): Option[String] =
    first(name, key => Option(hadoop.getPassword(key)).map(new String(_)).orNull)

  def bucket: Either[String, JObject] =
    Unmapped.find { case (name, harmless) => setting(name).exists(!harmless(_)) }
      .map { case (name, _) => Reason("S3A_SETTING", name) }
      .orElse(
        if (isPlain(setting("endpoint").getOrElse(""), setting("endpoint.region"))) None
        else Some(Reason("S3A_REGION")))
      .toLeft(())
      .flatMap(_ => credentials)
      .map { credentials =>
        ("name" -> bucketName) ~
          ("endpoint" -> setting("endpoint")) ~
          ("region" -> setting("endpoint.region")) ~
          ("tls" -> enabled("connection.ssl.enabled", default = true)) ~
          ("path_style" -> enabled("path.style.access", default = false)) ~ credentials
      }

  /** The credentials of the first provider that has any; empty if workers find the same credentials as AWS's own tools
    * do.
    */
  private def credentials: Either[String, JObject] = {
    val providers =
      setting("aws.credentials.provider").fold(DefaultProviders)(_.split("[,\\s]+").filter(_.nonEmpty).toSeq)
    val keys = for (access <- secret("access.key"); key <- secret("secret.key"))
      yield ("access_key" -> access) ~ ("secret_key" -> key)
    val session = for (keys <- keys; token <- secret("session.token")) yield keys ~ ("session_token" -> token)
    providers.map(_.split('.').last).map {
      case "TemporaryAWSCredentialsProvider" => session.map(Right(_))
      case "SimpleAWSCredentialsProvider" => keys.map(Right(_))
      case "AnonymousAWSCredentialsProvider" => Some(Right("anonymous" -> true: JObject))
      case provider if AmbientProviders(provider) => Some(Right(JObject()))
      case provider => Some(Left(Reason("S3A_CREDENTIALS", provider)))
    }.collectFirst { case Some(found) => found }.getOrElse(Left(Reason("S3A_NO_CREDENTIALS")))
  }
}

object S3Settings {

  /** Settings that change the data, or the access to it, and that workers do not support; each with the values that
    * have no effect.
    */
  private val Unmapped = Shared.fields[Set[String]]("s3_unmapped")
  private val Endpoint: Regex = Shared[String]("s3_endpoint").r
  private val AwsEndpoint: Regex = Shared[String]("s3_aws_endpoint").r
  private val DefaultProviders = Shared[Seq[String]]("s3_default_providers")
  private val AmbientProviders = Shared[Set[String]]("s3_ambient_providers")

  /** Whether an endpoint is a host. For a host of AWS, its region must be known, from its name or from a setting. */
  private def isPlain(host: String, region: Option[String]): Boolean =
    Endpoint.matches(host) && (!host.contains("amazonaws.") || region.isDefined || AwsEndpoint.matches(host))
}
