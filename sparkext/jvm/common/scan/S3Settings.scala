package org.apache.spark.sql.sparkext

import java.util.Locale

import scala.util.matching.Regex

import org.apache.hadoop.conf.Configuration
import org.json4s.JsonAST._
import org.json4s.JsonDSL._

/** What the connector's settings come to for one bucket. */
class S3Settings(bucketName: String, hadoop: Configuration) {
  import S3Settings._

  private def setting(name: String): Option[String] =
    Seq(s"fs.s3a.bucket.$bucketName.$name", s"fs.s3a.$name").flatMap(key => Option(hadoop.getTrimmed(key))).find(_.nonEmpty)

  /** As Hadoop reads what is neither true nor false. */
  private def enabled(name: String, default: Boolean): Boolean =
    setting(name).flatMap(_.toLowerCase(Locale.ROOT).toBooleanOption).getOrElse(default)

  /** Also from a store of passwords, if there is one. */
  private def secret(name: String): Option[String] =
    Seq(s"fs.s3a.bucket.$bucketName.$name", s"fs.s3a.$name")
      .flatMap(key => Option(hadoop.getPassword(key)).map(new String(_).trim)).find(_.nonEmpty)

  def bucket: Either[String, JObject] =
    Unmapped.find { case (name, harmless) => setting(name).exists(!harmless(_)) }
      .map { case (name, _) => s"fs.s3a.$name is set" }
      .orElse(
        if (isPlain(setting("endpoint").getOrElse(""), setting("endpoint.region"))) None
        else Some("the region of fs.s3a.endpoint is unknown"))
      .toLeft(())
      .flatMap(_ => credentials)
      .map { credentials =>
        ("name" -> bucketName) ~
          ("endpoint" -> setting("endpoint")) ~
          ("region" -> setting("endpoint.region")) ~
          ("tls" -> enabled("connection.ssl.enabled", default = true)) ~
          ("path_style" -> enabled("path.style.access", default = false)) ~ credentials
      }

  /** What the first of the providers gives that gives any; nothing where workers find the same as AWS's own tools do. */
  private def credentials: Either[String, JObject] = {
    val providers = setting("aws.credentials.provider").fold(DefaultProviders)(_.split("[,\\s]+").filter(_.nonEmpty).toSeq)
    val keys = for (access <- secret("access.key"); key <- secret("secret.key")) yield ("access_key" -> access) ~ ("secret_key" -> key)
    val session = for (keys <- keys; token <- secret("session.token")) yield keys ~ ("session_token" -> token)
    providers.map(_.split('.').last).map {
      case "TemporaryAWSCredentialsProvider" => session.map(Right(_))
      case "SimpleAWSCredentialsProvider" => keys.map(Right(_))
      case "AnonymousAWSCredentialsProvider" => Some(Right("anonymous" -> true: JObject))
      case provider if AmbientProviders(provider) => Some(Right(JObject()))
      case provider => Some(Left(s"credentials of $provider"))
    }.collectFirst { case Some(found) => found }.getOrElse(Left("no credentials in its settings"))
  }
}

object S3Settings {
  import Shared.formats

  /** Settings that change what is read, or how it is reached, in ways that workers know nothing of; and the values that do not. */
  private val Unmapped = Shared.fields("s3_unmapped").map { case (name, harmless) => name -> harmless.extract[Set[String]] }
  private val Endpoint: Regex = Shared("s3_endpoint").extract[String].r
  private val AwsEndpoint: Regex = Shared("s3_aws_endpoint").extract[String].r
  private val DefaultProviders = Shared("s3_default_providers").extract[Seq[String]]
  private val AmbientProviders = Shared("s3_ambient_providers").extract[Set[String]]

  /** Whether an endpoint is a host, and one of AWS's only if its region is told, by itself or by a setting. */
  private def isPlain(host: String, region: Option[String]): Boolean =
    Endpoint.matches(host) && (!host.contains("amazonaws.") || region.isDefined || AwsEndpoint.matches(host))
}
