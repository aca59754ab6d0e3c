"""Types of resources that moto lacks or has otherwise than AWS: they are validated and planned, and never made."""

from __future__ import annotations

from collections.abc import Mapping

REASONS: Mapping[str, str] = {
    "aws_eks_access_entry": "moto has no access entries",
    "aws_eks_access_policy_association": "moto has no access entries",
    "aws_eks_pod_identity_association": "moto has no associations of pods",
    "aws_eks_addon": "moto has no add-ons",
    "aws_eks_cluster": "moto's clusters come back with other settings than were asked for",
    "aws_eks_node_group": "moto's node groups come back with other settings than were asked for",
    "aws_s3_bucket_logging": "moto fails on policies whose principal is anybody",
    "aws_elasticache_parameter_group": "moto has no groups of parameters",
    "aws_elasticache_subnet_group": "moto does not answer what the provider asks after making one",
    "aws_elasticache_replication_group": "moto does not answer what the provider asks after making one",
}
