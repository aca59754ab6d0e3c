"""Who holds a stack whose state lies in a bucket of S3: Pulumi keeps its locks there as it does in a folder."""

from __future__ import annotations

import json
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from scripts.faults import Holder, OperationFailed
from scripts.state.address import Bucket

# A call that hangs is given up: 3 tries of 15 s at most.
LIMITS = Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 3, "mode": "standard"})


def holders(bucket: Bucket, project: str, stack: str) -> list[Holder]:
    """Who holds the lock of a stack; raises OperationFailed where the bucket cannot be read."""
    client = boto3.client("s3", region_name=bucket.region, endpoint_url=bucket.endpoint, config=LIMITS)
    try:
        return [Holder.of(json.loads(text)) for text in _locks(client, bucket, project, stack)]
    except (ClientError, BotoCoreError) as error:
        raise OperationFailed(
            f"the locks in s3://{bucket.name} cannot be read ({error}): see whether these credentials may read it, and "
            "whether `diphase backend init` has made it"
        ) from None
    finally:
        client.close()


def _locks(client: Any, bucket: Bucket, project: str, stack: str) -> list[bytes]:
    folder = f"{bucket.prefix}.pulumi/locks/organization/{project}/{stack}/"
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket.name, Prefix=folder)
    keys = [one["Key"] for page in pages for one in page.get("Contents", ()) if one["Key"].endswith(".json")]
    found = []
    for key in keys:
        try:
            found.append(client.get_object(Bucket=bucket.name, Key=key)["Body"].read())
        except client.exceptions.NoSuchKey:  # it was let go meanwhile
            continue
    return found
