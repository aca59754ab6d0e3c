"""What the workloads may do that look after names, metrics and volumes."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from infra.aws.permissions.statement import Statement


def dns(zone: pulumi.Input[str]) -> Iterator[Statement]:
    """external-dns: the records of one hosted zone (its ARN), and reading which zones there are."""
    yield Statement("Change", ["route53:ChangeResourceRecordSets", "route53:ListResourceRecordSets"], [zone])
    yield Statement("List", ["route53:ListHostedZones", "route53:ListTagsForResources"])


def remote_write(workspace: pulumi.Input[str]) -> Iterator[Statement]:
    """A collector of metrics: writing into one workspace (its ARN) of Amazon Managed Service for Prometheus."""
    yield Statement("Write", ["aps:RemoteWrite"], [workspace])


def query(workspace: pulumi.Input[str]) -> Iterator[Statement]:
    """Whoever asks it: KEDA, Grafana."""
    actions = ["aps:QueryMetrics", "aps:GetSeries", "aps:GetLabels", "aps:GetMetricMetadata", "aps:DescribeWorkspace"]
    yield Statement("Query", actions, [workspace])
    yield Statement("List", ["aps:ListWorkspaces"])
