"""What starts a role's process, whatever carries it: its package and its environment."""

from __future__ import annotations

from services.common.settings import GatewaySettings, KvSettings, RoleSettings, SchedulerSettings, WorkerSettings

# Of the C library, not of ours: a worker's weights lie in huge pages, which makes reading them faster.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
PACKAGES = {KvSettings: "kv", SchedulerSettings: "scheduler", WorkerSettings: "worker", GatewaySettings: "gateway"}


def environment_of(settings: RoleSettings) -> dict[str, str]:
    """Everything that a role's process finds in its environment besides what its carrier passes on."""
    return settings.to_environ() | (HUGE_PAGES if isinstance(settings, WorkerSettings) else {})


def package_of(settings: RoleSettings) -> str:
    """The package in services/ whose settings these are."""
    return PACKAGES[type(settings)]
