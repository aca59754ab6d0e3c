"""Whether the model lies in S3, and all of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

NAME = "weights"
S3 = "s3://"
NEEDED = ("config.json", "tokenizer.json")
SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.safetensors")


class Facts(msgspec.Struct, frozen=True):
    """Files of the model's folder with their bytes; None where there is no such bucket."""

    files: dict[str, int] | None = None


def gather(cloud: Cloud, wanted: Wanted) -> Facts:
    source = wanted.config.model.source
    if not (wanted.config.serves and source.startswith(S3)):
        return Facts()
    bucket, _, folder = source.removeprefix(S3).partition("/")
    prefix = f"{folder.strip('/')}/" if folder.strip("/") else ""
    s3 = cloud.client("s3")
    try:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix, Delimiter="/")
        found = [one for page in pages for one in page.get("Contents", ())]
    except s3.exceptions.NoSuchBucket:
        return Facts()
    return Facts({one["Key"].removeprefix(prefix): one["Size"] for one in found})


def judge(wanted: Wanted, facts: Facts) -> Iterator[Finding]:
    source, config = wanted.config.model.source, wanted.config
    if not config.serves:
        yield Finding(NAME, "ok", "no images are pinned, so no model is read")
    elif not source.startswith(S3):
        found = f"model.source {source} is fetched from outside, by every node that starts"
        yield Finding(NAME, "warning", found, f"copy it to s3://{wanted.buckets[0]}, and name that")
    elif facts.files is None:
        advice = "make the region without images first, for its bucket comes with it; then copy the model there"
        yield Finding(NAME, "fault", f"there is no bucket of {source}", advice)
    elif lacking := list(_lacking(facts.files)):
        yield Finding(NAME, "fault", f"{source} lacks {', '.join(lacking)}", f"copy the whole model there: {source}/")
    else:
        size = sum(facts.files.values()) / 1e9
        yield Finding(NAME, "ok", f"{source}: {len(facts.files)} files, {size:.1f} GB")


def _lacking(files: dict[str, int]) -> Iterator[str]:
    yield from (name for name in NEEDED if name not in files)
    tensors = [name for name in files if name.endswith(".safetensors")]
    if not tensors:
        yield "*.safetensors"
    shards: dict[tuple[str, int], int] = {}
    for name in tensors:
        if matched := SHARD.fullmatch(name):
            key = (matched.group(1), int(matched.group(2)))
            shards[key] = shards.get(key, 0) + 1
    yield from (
        f"{total - there} of {total} parts of {name}" for (name, total), there in shards.items() if there < total
    )


CHECK = Check(
    NAME,
    "model.source has config.json, tokenizer.json and every part of its safetensors",
    ("s3:ListBucket",),
    gather,
    judge,
)
