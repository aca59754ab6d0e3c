"""What every group of a stack's configuration has in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NAMESPACE = "diphase"
Port = Annotated[int, Field(ge=1, le=65535)]
DnsName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253)
]
LogLevel = Literal["debug", "info", "warning", "error"]


class Group(BaseModel):
    """A group of keys; names are camelCase in the stack's file."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=False,
        strict=True,
    )
