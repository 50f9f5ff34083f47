package org.apache.spark.sql.sparkext

import java.nio.file.attribute.{FileAttribute, PosixFilePermission, PosixFilePermissions}
import java.util.{Set => JavaSet}

/** What files and folders are made with, so that they are this user's alone from the first moment on, whatever the umask. */
private object OwnFiles {
  val Folder: FileAttribute[JavaSet[PosixFilePermission]] = only("rwx------")
  val File: FileAttribute[JavaSet[PosixFilePermission]] = only("rw-------")

  private def only(permissions: String) = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString(permissions))
}
