"""The group of the region: where everything lies, whose account pays for it, who makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, model_validator

from infra.config.aws.registry import RegionName
from infra.config.group import Group

Account = Annotated[str, Field(pattern=r"^\d{12}$")]
RoleArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+$")]
# AWS Tagging user guide, "Tag naming limits and requirements"; fifty tags a resource, of which some are ours.
KEY_LENGTH, VALUE_LENGTH, MOST_TAGS = 128, 256, 40


class Region(Group):
    """Of the aws target. Which region of which account, and by which tags its costs are found."""

    name: RegionName | None = Field(None, description="such as us-east-1; required")
    account: Account | None = Field(
        None, description="twelve digits; credentials of any other account are refused. Required"
    )
    environment: str = Field(
        "dev", pattern=r"^[a-z][a-z0-9-]{0,15}$", description="such as dev, staging, prod; a tag of every resource"
    )
    deploy_role: RoleArn | None = Field(
        None, description="role that `up` takes on; the credentials that it finds when absent"
    )
    tags: dict[str, str] = Field({}, description="more tags of every resource, such as owner or cost centre")
    max_retries: int = Field(10, ge=1, le=100, description="tries of a request that AWS throttles")

    @model_validator(mode="after")
    def _consistent(self) -> Region:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        for key, value in self.tags.items():
            if key.lower().startswith("aws:"):
                yield f"tags has {key!r}; AWS keeps names that begin with aws: take another"
            elif key.startswith("diphase:"):
                yield f"tags has {key!r}; the stack sets what begins with diphase: take another"
            elif not 1 <= len(key) <= KEY_LENGTH or len(value) > VALUE_LENGTH:
                yield f"tags has {key[:20]!r}, too long: names have {KEY_LENGTH} characters, values {VALUE_LENGTH}"
        if len(self.tags) > MOST_TAGS:
            yield f"tags has {len(self.tags)}; take {MOST_TAGS} at most, for AWS has fifty a resource, ours included"
