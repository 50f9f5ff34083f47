package org.apache.spark.sql.sparkext

import java.nio.file.{Files, Paths}
import java.util.Locale

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.json4s.JsonAST._
import org.json4s.JsonDSL._

import scala.util.Try

/** A file as it was when this was asked for. */
case class FileIdentity(path: Path, modified: Long, size: Long, status: Map[String, AnyRef])

/** From where workers read files: local disks, and buckets that Spark reads through its S3A connector. Whatever of a bucket's
  * settings they would not follow is a reason to leave the files to Spark.
  */
object FileStores {
  private val Local = "file"
  private val Status = "unix:ino,size,lastModifiedTime,ctime"
  private val Connector = "org.apache.hadoop.fs.s3a.S3AFileSystem"

  /** How a worker is told where a file lies: Python's `file_stores` takes it apart. */
  def location(path: Path): String = {
    val uri = path.toUri
    if (uri.getScheme == Local) uri.getPath else s"${uri.getScheme}://${uri.getAuthority}${uri.getPath}"
  }

  /** What changes when the file is replaced: as much as Python's `file_identity` knows of a local one, and of others what
    * Spark's listing has, their time and size. Where the system tells less of a local file, that counts for it, too.
    */
  def identity(file: Path, modified: Long, size: Long): FileIdentity = {
    val status = if (file.toUri.getScheme == Local) Try(Files.readAttributes(Paths.get(file.toUri.getPath), Status)).toOption else None
    FileIdentity(file, modified, size, status.map(_.asScala.toMap).getOrElse(Map.empty))
  }

  /** Python's `Bucket`s that these files lie in; or why workers do not read them. Local files need no settings. */
  def buckets(files: Seq[Path], settings: => Configuration): Either[String, Seq[JObject]] = {
    lazy val hadoop = settings
    val remote = files.map(_.toUri).filter(_.getScheme != Local).map(uri => (uri.getScheme, uri.getAuthority)).distinct
    val found = remote.map { case (scheme, authority) =>
      // Hosts and ports beside a bucket's name are no matter of S3A.
      if (Try(FileSystem.getFileSystemClass(scheme, hadoop).getName).toOption.contains(Connector) && authority != null) {
        new S3Settings(authority, hadoop).bucket.left.map(reason => s"bucket $authority: $reason")
      } else Left(s"files that workers do not read: $scheme:")
    }
    found.collectFirst { case Left(reason) => reason }.toLeft(found.collect { case Right(bucket) => bucket })
  }

  /** What the connector's settings come to for one bucket. */
  private class S3Settings(bucketName: String, hadoop: Configuration) {
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
      Unmapped.find { case (name, isDefault) => setting(name).exists(!isDefault(_)) }
        .map { case (name, _) => s"fs.s3a.$name is set" }
        .orElse(
          if (isPlain(setting("endpoint").getOrElse(""), setting("endpoint.region"))) None
          else Some("fs.s3a.endpoint is none whose region is known"))
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
      val providers = setting("aws.credentials.provider").fold(Default)(_.split("[,\\s]+").filter(_.nonEmpty).toSeq)
      val keys = for (access <- secret("access.key"); key <- secret("secret.key")) yield ("access_key" -> access) ~ ("secret_key" -> key)
      val session = for (keys <- keys; token <- secret("session.token")) yield keys ~ ("session_token" -> token)
      providers.map(_.split('.').last).map {
        case "TemporaryAWSCredentialsProvider" => session.map(Right(_))
        case "SimpleAWSCredentialsProvider" => keys.map(Right(_))
        case "AnonymousAWSCredentialsProvider" => Some(Right("anonymous" -> true: JObject))
        case provider if Ambient.contains(provider) => Some(Right(JObject()))
        case provider => Some(Left(s"credentials of $provider"))
      }.collectFirst { case Some(found) => found }.getOrElse(Left("no credentials in its settings"))
    }
  }

  private object S3Settings {

    /** Settings that change what is read, or how it is reached, in ways that workers know nothing of; and their defaults. */
    val Unmapped: Seq[(String, String => Boolean)] = Seq(
      "proxy.host" -> (_ => false),
      "assumed.role.arn" -> (_ => false),
      "accesspoint.arn" -> (_ => false),
      "custom.signers" -> (_ => false),
      "encryption.algorithm" -> (Seq("AES256", "SSE-KMS", "DSSE-KMS").contains(_)),
      "server-side-encryption-algorithm" -> (Seq("AES256", "SSE-KMS", "DSSE-KMS").contains(_)),
      "requester.pays.enabled" -> (_ == "false"),
      "endpoint.fips" -> (_ == "false"),
      "security.credential.provider.path" -> (_ => false),
      "delegation.token.binding" -> (_ => false))

    private val Endpoint = "((https?://)?[^/]+/?)?".r
    private val AwsEndpoint = "(https?://)?s3([.-][a-z]{2}(-[a-z]+)+-\\d)?\\.amazonaws\\.com/?".r

    /** Whether an endpoint is a host, and one of AWS's only if its region is told, by itself or by a setting. */
    def isPlain(endpoint: String, region: Option[String]): Boolean =
      Endpoint.matches(endpoint) && (!endpoint.contains("amazonaws.") || region.isDefined || AwsEndpoint.matches(endpoint))

    val Default: Seq[String] = Seq("TemporaryAWSCredentialsProvider", "SimpleAWSCredentialsProvider", "EnvironmentVariableCredentialsProvider")

    val Ambient: Set[String] = Set(
      "EnvironmentVariableCredentialsProvider",
      "IAMInstanceCredentialsProvider",
      "InstanceProfileCredentialsProvider",
      "ContainerCredentialsProvider",
      "WebIdentityTokenFileCredentialsProvider",
      "WebIdentityTokenCredentialsProvider",
      "DefaultCredentialsProvider",
      "DefaultAWSCredentialsProviderChain")
  }
}
