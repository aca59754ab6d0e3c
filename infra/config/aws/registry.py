"""The group of the registry: where images lie, how long, and in which regions else."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from infra.config.group import Group

RegionName = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]
Upstream = Literal["ecr", "kubernetes", "quay"]


class Registry(Group):
    """Of the aws target. ECR: a repository for each role, whose tags never move, scanned on push."""

    prefix: str | None = Field(
        None,
        pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$",
        max_length=200,
        description="repositories are PREFIX/gateway and so on; `diphase/STACK` when absent",
    )
    keep_images: int = Field(50, ge=2, le=1000, description="tagged images kept in each repository; older ones go")
    untagged_days: int = Field(14, ge=1, description="how long an image without a tag is kept")
    account_settings: bool = Field(
        True,
        description="whether this stack sets what a region has once for the whole account: replication, pull-through "
        "cache, scanning. One stack of an account and region may",
    )
    replicate_to: list[RegionName] = Field([], description="regions to which pushed images are copied")
    pull_through: list[Upstream] = Field(
        ["ecr", "kubernetes", "quay"],
        description="public registries that are cached here: ECR Public, registry.k8s.io, quay.io",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Registry:
        if self.replicate_to and not self.account_settings:
            raise ValueError("replicateTo needs accountSettings true: replication is set once for account and region")
        for key, values in (("replicateTo", self.replicate_to), ("pullThrough", self.pull_through)):
            if len(set(values)) < len(values):
                raise ValueError(f"{key} lists something twice: leave one out")
        return self
