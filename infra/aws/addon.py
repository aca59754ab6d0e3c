"""One add-on of a cluster, of a pinned release: what somebody changed by hand in it is overwritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_aws import eks


def addon(
    prefix: str,
    kind: str,
    version: str,
    cluster: pulumi.Input[str],
    parent: pulumi.Resource,
    after: Sequence[pulumi.Resource] = (),
    values: Mapping[str, Any] | None = None,
) -> eks.Addon:
    """Declare an add-on such as coredns; `values` are of its own configuration schema (`aws eks
    describe-addon-configuration`)."""
    return eks.Addon(
        f"{prefix}-{kind}",
        addon_name=kind,
        addon_version=version,
        cluster_name=cluster,
        configuration_values=pulumi.Output.json_dumps(values, separators=(",", ":")) if values else None,
        # Without it an object that is there already fails the creation, and a field that kubectl set stays.
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        opts=pulumi.ResourceOptions(parent=parent, depends_on=list(after)),
    )
