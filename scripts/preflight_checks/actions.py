"""What an `up` of a region calls: one action for each kind of thing that it makes or changes. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.preflight_checks.wanted import Wanted

ALWAYS = {
    "ec2": "CreateVpc AssociateVpcCidrBlock CreateSubnet CreateSubnetCidrReservation CreateRouteTable CreateRoute "
    "CreateInternetGateway CreateSecurityGroup AuthorizeSecurityGroupIngress AuthorizeSecurityGroupEgress "
    "CreateVpcEndpoint CreateLaunchTemplate RunInstances CreateTags DescribeVpcs DeleteVpc",
    "eks": "CreateCluster UpdateClusterConfig UpdateClusterVersion CreateNodegroup CreateAddon CreateAccessEntry "
    "AssociateAccessPolicy CreatePodIdentityAssociation DescribeCluster TagResource DeleteCluster",
    "iam": "CreateRole PutRolePolicy AttachRolePolicy CreatePolicy PassRole TagRole CreateServiceLinkedRole DeleteRole",
    "kms": "CreateKey CreateAlias EnableKeyRotation PutKeyPolicy TagResource ScheduleKeyDeletion",
    "logs": "CreateLogGroup PutRetentionPolicy AssociateKmsKey DeleteLogGroup",
    "s3": "CreateBucket PutBucketPolicy PutBucketVersioning PutEncryptionConfiguration PutLifecycleConfiguration "
    "PutBucketPublicAccessBlock PutBucketOwnershipControls PutBucketLogging DeleteBucket",
    "ecr": "CreateRepository PutLifecyclePolicy DeleteRepository",
    "elasticache": "CreateReplicationGroup CreateCacheSubnetGroup CreateCacheParameterGroup DeleteReplicationGroup",
    "secretsmanager": "CreateSecret PutSecretValue DeleteSecret",
    "sns": "CreateTopic SetTopicAttributes Subscribe DeleteTopic",
    "cloudwatch": "PutMetricAlarm DeleteAlarms",
}
WAYS_OUT = {"ec2": "AllocateAddress CreateNatGateway"}
FLOW_LOGS = {"ec2": "CreateFlowLogs"}
NAMES = {
    "acm": "RequestCertificate DescribeCertificate DeleteCertificate",
    "route53": "ChangeResourceRecordSets GetChange CreateHealthCheck",
}
FIREWALL = {"wafv2": "CreateWebACL AssociateWebACL PutLoggingConfiguration DeleteWebACL"}
CLOUDFRONT = {"cloudfront": "CreateDistribution UpdateDistribution DeleteDistribution"}
LUSTRE = {"fsx": "CreateFileSystem CreateDataRepositoryAssociation DeleteFileSystem"}
REGISTRY = {"ecr": "PutReplicationConfiguration CreatePullThroughCacheRule PutRegistryScanningConfiguration"}
KARPENTER = {"sqs": "CreateQueue SetQueueAttributes DeleteQueue", "events": "PutRule PutTargets DeleteRule"}
MANAGED = {"aps": "CreateWorkspace DeleteWorkspace", "grafana": "CreateWorkspace DeleteWorkspace"}
BUDGET = {"budgets": "ModifyBudget"}


def actions(wanted: Wanted) -> set[str]:
    """Such as ec2:CreateVpc."""
    return {
        f"{service}:{action}" for part in _parts(wanted) for service, text in part.items() for action in text.split()
    }


def _parts(wanted: Wanted) -> Iterator[dict[str, str]]:
    config = wanted.config
    conditions = [
        (ALWAYS, True),
        (WAYS_OUT, config.network.nat != "none"),
        (FLOW_LOGS, config.network.flow_logs != "none"),
        (NAMES, config.edge.host is not None),
        (FIREWALL, config.edge.waf is not None),
        (CLOUDFRONT, config.edge.cloudfront is not None),
        (LUSTRE, config.storage.lustre is not None),
        (REGISTRY, config.registry.account_settings),
        (KARPENTER, config.capacity.karpenter),
        (MANAGED, config.monitoring.kind == "managed"),
        (BUDGET, config.monitoring.budget is not None),
    ]
    return (part for part, condition in conditions if condition)
