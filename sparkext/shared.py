"""What Python and Scala both have to know, written once: plain data in the jar, too.

So do the options (`sparkext.config`) and the names in plans (`sparkext.plans`): see `sparkext.spark.jar`. Needs nothing
but the standard library, as the build of the package does.
"""

from __future__ import annotations

FIRST_BATCH_ROWS = 16_384
"""The first batch is small and later ones grow, so that a query with a LIMIT sees its rows early."""

BATCH_GROWTH = 4
"""How many times as many rows as a batch the next one has."""

SPARK_TYPES = {
    "BooleanType": "bool",
    "ByteType": "int8",
    "ShortType": "int16",
    "IntegerType": "int32",
    "LongType": "int64",
    "FloatType": "float32",
    "DoubleType": "float64",
    "DateType": "date",
    "TimestampType": "timestamp",
    "TimestampNTZType": "timestamp_ntz",
    "TimeType": "time",
    "DayTimeIntervalType": "daytime_interval",
    "StringType": "string",
    "CharType": "string",
    "VarcharType": "string",
    "BinaryType": "binary",
}
"""Key types by Spark's classes, which have the same names in both languages. Decimals have digits as well, and some
strings are no keys: each language looks at these itself."""

PARQUET_TYPES = {
    "BOOLEAN": {"": "bool"},
    "INT32": {
        "": "int32",
        "INTEGER(8,true)": "int8",
        "INTEGER(16,true)": "int16",
        "INTEGER(32,true)": "int32",
        "DATE": "date",
        "DECIMAL": "decimal",
    },
    "INT64": {
        "": "int64",
        "INTEGER(64,true)": "int64",
        "DECIMAL": "decimal",
        "TIMESTAMP(MILLIS,true)": "timestamp",
        "TIMESTAMP(MICROS,true)": "timestamp",
        "TIMESTAMP(MILLIS,false)": "timestamp_ntz",
        "TIMESTAMP(MICROS,false)": "timestamp_ntz",
    },
    "INT96": {"": "timestamp"},
    "FLOAT": {"": "float32"},
    "DOUBLE": {"": "float64"},
    "BYTE_ARRAY": {"": "binary", "STRING": "string"},
    "FIXED_LEN_BYTE_ARRAY": {"DECIMAL": "decimal"},
}
"""The key type that Spark and Arrow read from values of a physical type with a logical one, as parquet-java spells it.

What is missing, Spark reads in a way of its own, or fails on some: decimals as bytes of any length, for one.
"""

MOST_DECIMAL_BYTES = 16
"""What Arrow's decimals have. Files may have longer ones."""

_ON_THE_SERVER = ("AES256", "SSE-KMS", "DSSE-KMS")

S3_UNMAPPED: dict[str, tuple[str, ...]] = {
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
"""Settings of S3A that change what is read, or how it is reached, in ways that workers know nothing of; and the values
that do not."""

S3_ENDPOINT = r"((https?://)?[^/]+/?)?"
"""A host. Both languages read this pattern, and the next one, alike."""

S3_AWS_ENDPOINT = r"(?:https?://)?s3(?:[.-]([a-z]{2}(?:-[a-z]+)+-\d))?\.amazonaws\.com/?"
"""AWS's endpoint of a region, which it names, or of all."""

S3_DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider",
    "SimpleAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
)
"""Providers of credentials that are asked where a session names none."""

S3_AMBIENT_PROVIDERS = (
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
