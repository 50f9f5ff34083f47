"""Constants that Python and Scala share, defined once and copied into the jar as plain data.

The jar also contains the options (`sparkext.config`) and constants of `sparkext.plans`, see `sparkext.spark.jar`. Needs
only the standard library, because the build of the package imports it.
"""

from __future__ import annotations

FIRST_BATCH_ROWS = 16_384
"""Rows of the first batch. It is small, and later batches grow, so that a query with a LIMIT receives rows early."""

BATCH_GROWTH = 4
"""Ratio of the rows of a batch to the rows of the preceding batch."""

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
"""Key types by Spark's classes, which have the same names in both languages. Decimals, which also have a precision and
a scale, and strings that cannot be keys are handled by each language's own code."""

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
"""Key types by Parquet's physical type and logical type, spelled as in parquet-java: Spark and Arrow read them alike.

Types that are missing here are read differently by Spark, or fail for some values, such as decimals of arbitrary length
in BYTE_ARRAY.
"""

MOST_DECIMAL_BYTES = 16
"""Size of Arrow's decimals (128 bits). Parquet files may have longer ones."""

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
"""S3A settings that workers do not support, because they change the data that is read or how it is accessed. The tuple
lists values of a setting that change neither."""

S3_ENDPOINT = r"((https?://)?[^/]+/?)?"
"""Pattern of an endpoint: a host. This pattern and the next one have the same meaning in Python and Scala."""

S3_AWS_ENDPOINT = r"(?:https?://)?s3(?:[.-]([a-z]{2}(?:-[a-z]+)+-\d))?\.amazonaws\.com/?"
"""Pattern of AWS's global endpoint, or of the endpoint of a region, which is the group."""

S3_DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider",
    "SimpleAWSCredentialsProvider",
    "EnvironmentVariableCredentialsProvider",
)
"""The credential providers of a session that configures none."""

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
"""Credential providers whose credentials workers find themselves, as AWS's own tools do."""
