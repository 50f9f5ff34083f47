"""Derives the access settings of one bucket from Spark's S3A settings, for sessions without the jar.

The session extension does the same when it plans (`S3Settings.scala`). If a bucket has a setting that workers do not
support, its files are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sparkext.jvm_constants import S3_AMBIENT_PROVIDERS, S3_DEFAULT_PROVIDERS, S3_ENDPOINT, S3_UNMAPPED
from sparkext.parquet.file_stores import AWS_ENDPOINT, Bucket

Setting = Callable[[str], "str | None"]
"""Returns the value of a Hadoop key, None if it is not set."""

_ENDPOINT = re.compile(S3_ENDPOINT)


def derive_bucket(name: str, hadoop: Setting) -> Bucket | str:
    """Return the access settings of a bucket, or the reason why workers cannot read it."""

    def setting(key: str) -> str | None:
        for full in (f"fs.s3a.bucket.{name}.{key}", f"fs.s3a.{key}"):
            text = (hadoop(full) or "").strip()
            if text:
                return text
        return None

    def enabled(key: str, default: bool) -> bool:
        return {"true": True, "false": False}.get((setting(key) or "").lower(), default)

    for key, harmless in S3_UNMAPPED.items():
        value = setting(key)
        if value is not None and value not in harmless:
            return f"bucket {name}: fs.s3a.{key} is set"
    if not _is_plain(setting("endpoint") or "", setting("endpoint.region")):
        return f"bucket {name}: the region of fs.s3a.endpoint is unknown"
    credentials = _find_credentials(setting)
    if isinstance(credentials, str):
        return f"bucket {name}: {credentials}"
    return Bucket.from_data(
        {
            "name": name,
            "endpoint": setting("endpoint"),
            "region": setting("endpoint.region"),
            "tls": enabled("connection.ssl.enabled", True),
            "path_style": enabled("path.style.access", False),
            **credentials,
        }
    )


def _is_plain(endpoint: str, region: str | None) -> bool:
    """Return whether an endpoint is a host and, for hosts of AWS, its region is known from the host or a setting."""
    if _ENDPOINT.fullmatch(endpoint) is None:
        return False
    return "amazonaws." not in endpoint or region is not None or AWS_ENDPOINT.fullmatch(endpoint) is not None


def _find_credentials(setting: Setting) -> dict[str, str | bool] | str:
    """Return the credentials of the first provider that has any, or the reason why there are none."""
    listed = (setting("aws.credentials.provider") or "").replace(",", " ").split()
    values = {key: setting(key.replace("_", ".")) for key in ("access_key", "secret_key", "session_token")}
    keys = {key: value for key, value in values.items() if value is not None}
    for provider in listed or S3_DEFAULT_PROVIDERS:
        kind = provider.rpartition(".")[2]
        if kind == "TemporaryAWSCredentialsProvider":
            if len(keys) == len(values):
                return dict(keys)
        elif kind == "SimpleAWSCredentialsProvider":
            if "access_key" in keys and "secret_key" in keys:
                return {key: keys[key] for key in ("access_key", "secret_key")}
        elif kind == "AnonymousAWSCredentialsProvider":
            return {"anonymous": True}
        else:
            return {} if kind in S3_AMBIENT_PROVIDERS else f"credentials of {kind}"
    return "no credentials in its settings"
