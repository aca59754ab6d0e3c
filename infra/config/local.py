"""The group of the local target."""

from __future__ import annotations

from pydantic import Field

from infra.config.group import Group, LogLevel

# local.basePort leaves room for the ports of every role above it; infra.local.roles lays them out.
PORT_SPAN = 60


class Local(Group):
    """What only the local target has."""

    base_port: int = Field(8080, ge=1, le=65535 - PORT_SPAN, description="first of the sixty ports that the roles use")
    drain_seconds: float = Field(
        30.0, ge=0, le=3600, description="how long a role that is told to stop may finish requests"
    )
    ready_seconds: float = Field(300.0, gt=0, description="how long `up` waits until the roles are ready")
    log_level: LogLevel = Field("info", description="what the roles log")
