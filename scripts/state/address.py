"""Where a stack's state lies: what the environment says, else a region's own bucket, else what Pulumi.yaml says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import yaml

from infra.config import NAMESPACE

VARIABLE = "PULUMI_BACKEND_URL"
ALIAS = "alias/diphase-state"
KMS = "awskms://"


class Bucket(NamedTuple):
    """A bucket as Pulumi's URL of a backend names it; `prefix` begins the keys in it."""

    name: str
    prefix: str = ""
    region: str | None = None
    endpoint: str | None = None

    @classmethod
    def of(cls, url: str) -> Bucket | None:
        """The bucket of s3://NAME/PREFIX?region=…; None for a backend of another kind."""
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc:
            return None
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        endpoint = query.get("endpoint")
        if endpoint and "://" not in endpoint:
            endpoint = f"https://{endpoint}"
        prefix = parts.path.strip("/")
        return cls(parts.netloc, f"{prefix}/" if prefix else "", query.get("region"), endpoint)


class StackFile(NamedTuple):
    """What a stack's file says of its state."""

    secrets: str | None
    region: str | None
    account: str | None

    @classmethod
    def read(cls, file: Path) -> StackFile:
        """Nothing of a file that cannot be read, which others tell."""
        try:
            found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
            values = found.get("config") or {}
            region = values.get(f"{NAMESPACE}:region") or {}
            aws = values.get(f"{NAMESPACE}:target") == "aws"
            return cls(found.get("secretsprovider"), *(_text(region, key, aws) for key in ("name", "account")))
        except (OSError, ValueError, yaml.YAMLError, AttributeError):
            return cls(None, None, None)

    @property
    def url(self) -> str | None:
        """The bucket of the account's region; None where the file keeps its secrets by no key of KMS."""
        if not (self.region and self.account and (self.secrets or "").startswith(KMS)):
            return None
        return f"s3://{bucket_name(self.account, self.region)}?region={self.region}&awssdk=v2"


def bucket_name(account: str, region: str) -> str:
    """One bucket for all stacks of an account's region; names of buckets are the world's, so the account is in it."""
    return f"diphase-state-{account}-{region}"


def backend(config_file: Path, environ: Mapping[str, str]) -> str | None:
    """The URL of a stack's backend; None where it is what Pulumi.yaml says."""
    return environ.get(VARIABLE) or StackFile.read(config_file).url


def _text(region: Mapping[str, Any], key: str, aws: bool) -> str | None:
    value = region.get(key)
    return value if aws and isinstance(value, str) else None
