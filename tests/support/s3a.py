"""Settings with which a session reads buckets through the S3A connector, whose jars `spark.jars.packages` fetches."""

from __future__ import annotations

from pathlib import Path

# The parts of the AWS bundle (600 MB) that the connector needs.
_PACKAGES = (
    "org.apache.hadoop:hadoop-aws:{hadoop}",
    *(f"software.amazon.awssdk:{part}:2.35.4" for part in ("s3-transfer-manager", "sts", "apache-client")),
    "software.amazon.awssdk:netty-nio-client:2.35.4",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
_LEFT_OUT = ("software.amazon.awssdk:bundle", "io.netty:*", "org.slf4j:*", "org.wildfly.openssl:wildfly-openssl")


def s3a_settings(endpoint: str, access_key: str, secret_key: str) -> dict[str, str]:
    """Return the settings of a session that reads the buckets of an endpoint."""
    reached = {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": access_key,
        "secret.key": secret_key,
    }
    return {
        "spark.jars.packages": ",".join(_PACKAGES).format(hadoop=_hadoop_version()),
        "spark.jars.excludes": ",".join(_LEFT_OUT),
        **{f"spark.hadoop.fs.s3a.{key}": value for key, value in reached.items()},
    }


def _hadoop_version() -> str:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    return next(jars.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
