"""What the settings of Spark's S3A connector come to for one bucket, where no jar can tell.

The session extension asks the same when it plans (`FileStores.scala`). Whatever of a bucket's settings workers would
not follow is a reason to leave its files to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sparkext.parquet.file_stores import AWS_ENDPOINT, Bucket

Setting = Callable[[str], "str | None"]
"""Gives the value of a Hadoop key, None if it has none."""

_ON_THE_SERVER = ("AES256", "SSE-KMS", "DSSE-KMS")
_UNMAPPED = {
    "proxy.host": (),
    "assumed.role.arn": (),
    "accesspoint.arn": (),
    "custom.signers": (),
    "encryption.algorithm": _ON_THE_SERVER,
    "server-side-encryption-algorithm": _ON_THE_SERVER,
    "requester.pays.enabled": ("false",),
    "endpoint.fips": ("false",),
    "security.credential.provider.path": (),
    "delegation.token.binding": (),
}
"""Settings that change what is read, or how it is reached; and the values that do not."""

_ENDPOINT = re.compile(r"((https?://)?[^/]+/?)?")

_DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider",
    "SimpleAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
)
_AMBIENT_PROVIDERS = (
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ContainerCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
    "WebIdentityTokenCredentialsProvider",
    "DefaultCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
)
"""What these find, workers find as AWS's own tools do."""


def bucket_of(name: str, hadoop: Setting) -> Bucket | str:
    """Return how workers reach a bucket, or why they do not."""

    def setting(key: str) -> str | None:
        for full in (f"fs.s3a.bucket.{name}.{key}", f"fs.s3a.{key}"):
            found = (hadoop(full) or "").strip()
            if found:
                return found
        return None

    def enabled(key: str, default: bool) -> bool:
        return {"true": True, "false": False}.get((setting(key) or "").lower(), default)

    for key, harmless in _UNMAPPED.items():
        value = setting(key)
        if value is not None and value not in harmless:
            return f"bucket {name}: fs.s3a.{key} is set"
    if not _is_plain(setting("endpoint") or "", setting("endpoint.region")):
        return f"bucket {name}: fs.s3a.endpoint is none whose region is known"
    credentials = _credentials(setting)
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
    """Return whether an endpoint is a host, and one of AWS's only if its region is told, by itself or by a setting."""
    if _ENDPOINT.fullmatch(endpoint) is None:
        return False
    return "amazonaws." not in endpoint or region is not None or AWS_ENDPOINT.fullmatch(endpoint) is not None


def _credentials(setting: Setting) -> dict[str, str | bool] | str:
    """Return what the first of the providers gives that gives any."""
    listed = (setting("aws.credentials.provider") or "").replace(",", " ").split()
    found = {key: setting(key.replace("_", ".")) for key in ("access_key", "secret_key", "session_token")}
    keys = {key: value for key, value in found.items() if value is not None}
    for provider in listed or _DEFAULT_PROVIDERS:
        kind = provider.rpartition(".")[2]
        if kind == "TemporaryAWSCredentialsProvider":
            if len(keys) == len(found):
                return dict(keys)
        elif kind == "SimpleAWSCredentialsProvider":
            if "access_key" in keys and "secret_key" in keys:
                return {key: keys[key] for key in ("access_key", "secret_key")}
        elif kind == "AnonymousAWSCredentialsProvider":
            return {"anonymous": True}
        else:
            return {} if kind in _AMBIENT_PROVIDERS else f"credentials of {kind}"
    return "no credentials in its settings"
