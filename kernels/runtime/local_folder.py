"""The user's folder in which the processes of an executor share files."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from errno import EPERM
from pathlib import Path


def local_folder() -> Path:
    """Return this package's folder among the local files of the executor that this worker belongs to.

    Raises
    ------
    PermissionError
        See `create_private_folder`.
    """
    spark = os.environ.get("SPARK_LOCAL_DIRS")
    if not spark:  # outside of Spark: a folder inside one that all users share
        return create_private_folder(Path(tempfile.gettempdir()) / f"sparkext-{os.geteuid()}")
    return create_private_folder(Path(spark.split(",")[0]) / "sparkext")


def create_private_folder(path: Path) -> Path:
    """Create the folder `path` if it does not exist, make it accessible to this user only, and return it.

    Raises
    ------
    PermissionError
        `path` is a link, or belongs to another user, who could replace files in it.
    """
    with suppress(FileExistsError):  # it may be anything: checked below
        path.mkdir(mode=0o700)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise PermissionError(EPERM, "not a folder of this user's own", str(path)) from error
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise PermissionError(EPERM, "the folder belongs to another user", str(path))
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)
    return path
