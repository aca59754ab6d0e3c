"""Fetches a model from S3 into the cache: whole, once, and the very objects that were listed."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

PATTERNS = ("*.json", "*.jinja", "*.safetensors")
MOST_OBJECTS = 10_000  # below a prefix; more than that is not one model
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 10, 60, 5
# One connection to S3 carries some 90 MB/s, and AWS advises one for each that a network of an instance has room for:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-design-patterns.html
PARTS_AT_ONCE, PART_BYTES = 16, 16 << 20
REMEDIES = {
    "AccessDenied": "the role needs s3:ListBucket on the bucket and s3:GetObject on its objects (and kms:Decrypt)",
    "403": "the role needs s3:GetObject on the bucket's objects (and kms:Decrypt on its key)",
    "NoSuchBucket": "look at model.source",
}

_URL = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]+)(?:/(?P<prefix>.*))?")


class S3Error(Exception):
    """The model is not to be had; the message says what to do."""


@dataclass(frozen=True)
class Object:
    """What a listing says of an object. The ETag changes with its content."""

    key: str
    size: int
    etag: str

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


@dataclass(frozen=True)
class Place:
    """s3://BUCKET/PREFIX: the objects right below the prefix are the model's files."""

    bucket: str
    prefix: str

    @classmethod
    def of(cls, url: str) -> Place:
        """Raises S3Error where it isn't one."""
        found = _URL.fullmatch(url)
        if found is None:
            raise S3Error(f"model source {url!r} is not s3://BUCKET/FOLDER")
        folder = (found["prefix"] or "").strip("/")
        return cls(found["bucket"], f"{folder}/" if folder else "")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def name(self) -> str:
        """What a model there is called: the folder, or else the bucket."""
        return self.prefix.rstrip("/").rpartition("/")[2] or self.bucket


def revision_of(objects: list[Object]) -> str:
    """Stands for the content of all objects, as twelve hexadecimal digits."""
    listed = "".join(f"{one.name} {one.size} {one.etag}\n" for one in objects)
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


def listing(place: Place) -> list[Object]:
    """The model's files at a place, by name; raises S3Error."""
    with _said(place, "list"):
        pages = (
            _client()
            .get_paginator("list_objects_v2")
            .paginate(
                Bucket=place.bucket, Prefix=place.prefix, Delimiter="/", PaginationConfig={"MaxItems": MOST_OBJECTS}
            )
        )
        found = [Object(one["Key"], one["Size"], one["ETag"]) for page in pages for one in page.get("Contents", [])]
    wanted = [one for one in found if any(fnmatchcase(one.name, pattern) for pattern in PATTERNS)]
    if not wanted:
        raise S3Error(f"there is no model at {place}: its files ({', '.join(PATTERNS)}) must lie right there")
    return sorted(wanted, key=lambda one: one.key)


def fetch(place: Place, objects: list[Object], folder: Path) -> None:
    """Put the objects into `folder`, which is there and empty; raises S3Error.

    What arrives is checked by the checksums that S3 keeps; objects that were replaced meanwhile are refused.
    """
    total = sum(one.size for one in objects)
    free = shutil.disk_usage(folder).free
    if total > free:
        raise S3Error(f"{place} takes {_gib(total)} and {_gib(free)} are free in {folder.parent}: make room")
    print(f"fetching {len(objects)} files, {_gib(total)}, from {place}", file=sys.stderr, flush=True)
    with _said(place, "fetch"):
        _download(place, objects, folder)
    if revision_of(listing(place)) != revision_of(objects):
        raise S3Error(f"{place} was changed while it was fetched: give each version of a model its own folder")


def _download(place: Place, objects: list[Object], folder: Path) -> None:
    from boto3.s3.transfer import TransferConfig

    client = _client()
    config = TransferConfig(multipart_chunksize=PART_BYTES, max_concurrency=PARTS_AT_ONCE)
    for one in objects:
        client.download_file(place.bucket, one.key, str(folder / one.name), Config=config)


def _client() -> S3Client:
    """Credentials, region and endpoint are found as in every program of AWS's: environment, files, the pod's role."""
    import boto3  # here, since only those who fetch have it and need it
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        max_pool_connections=PARTS_AT_ONCE,
    )
    return boto3.Session().client("s3", config=config)


@contextmanager
def _said(place: Place, what: str) -> Iterator[None]:
    """AWS's faults as S3Error."""
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    try:
        yield
    except NoCredentialsError:
        raise S3Error(
            f"cannot {what} {place}: no AWS credentials. In a pod they come from the role of its service account, "
            "elsewhere from the environment or `aws configure`"
        ) from None
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        remedy = REMEDIES.get(code, "")
        raise S3Error(f"cannot {what} {place}: {error}{remedy and f': {remedy}'}") from error
    except (BotoCoreError, Boto3Error, OSError) as error:
        raise S3Error(f"cannot {what} {place}: {error}") from error


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
