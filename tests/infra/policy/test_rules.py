"""Each rule, broken once, and the same resource as it should be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from infra.policy.resource import UNKNOWN, Resource
from infra.policy.rules import RULES, faults, idle
from tests.infra.aws.region import config

KEY = "arn:aws:kms:us-east-1:123456789012:key/k"
CLUSTER = {
    "encryptionConfig": {"provider": {"keyArn": KEY}, "resources": ["secrets"]},
    "upgradePolicy": {"supportType": "STANDARD"},
    "accessConfig": {"authenticationMode": "API"},
}
RESERVED = {
    "capacityReservationSpecification": {"capacityReservationTarget": {"capacityReservationId": "cr-0a1b2c3d4e5f60718"}}
}
TEMPLATE = {
    "metadataOptions": {"httpTokens": "required"},
    "networkInterfaces": [{"associatePublicIpAddress": "false"}, {"interfaceType": "efa-only"}],
    "blockDeviceMappings": [{"ebs": {"encrypted": "true", "kmsKeyId": KEY}}],
    "tagSpecifications": [{"resourceType": kind} for kind in ("instance", "volume", "network-interface")],
}
GROUP = {"releaseVersion": "1.35.6-20260818", "subnetIds": ["private-a-id"], "capacityType": "ON_DEMAND"}
CLASS = {
    "amiSelectorTerms": [{"alias": "al2023@v20260818"}],
    "metadataOptions": {"httpTokens": "required"},
    "blockDeviceMappings": [{"ebs": {"encrypted": True}}],
}
RULE = {"securityGroupId": "efa-id", "referencedSecurityGroupId": "efa-id", "ipProtocol": "-1"}
CLOSED = dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True)


def declared(type_: str, inputs: dict[str, Any] | None = None, name: str = "one", **options: Any) -> Resource:
    return Resource(type_, name, inputs or {}, urn=f"urn:pulumi:test::diphase::{type_}::{name}", **options)


def policy(effect: str = "Allow", **statement: Any) -> str:
    return json.dumps({"Statement": [{"Sid": "S", "Effect": effect, **statement}]})


def provider(environment: str) -> Resource:
    tags = {"diphase:stack": "s", "diphase:environment": environment}
    return declared("pulumi:providers:aws", {"defaultTags": json.dumps({"tags": tags})})


def ingress(**inputs: Any) -> Resource:
    return declared("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", {"ipProtocol": "tcp", **inputs})


def listening(ports: str) -> Resource:
    annotations = {"alb.ingress.kubernetes.io/listen-ports": ports}
    return declared("kubernetes:networking.k8s.io/v1:Ingress", {"metadata": {"annotations": annotations}})


def template(**changes: Any) -> Resource:
    return declared("aws:ec2/launchTemplate:LaunchTemplate", {**TEMPLATE, **changes})


def group(
    made_of: Resource | None = None, ignored: Sequence[str] = ("scalingConfig.desiredSize",), **changes: Any
) -> Any:
    needs = [made_of.urn] if made_of else []
    return declared("aws:eks/nodeGroup:NodeGroup", {**GROUP, **changes}, ignored=ignored, dependencies=needs)


def cluster(**changes: Any) -> Resource:
    return declared("aws:eks/cluster:Cluster", {**CLUSTER, **changes}, protect=True)


def repository(**changes: Any) -> Resource:
    good = {
        "imageTagMutability": "IMMUTABLE",
        "imageScanningConfiguration": {"scanOnPush": True},
        "encryptionConfigurations": [{"encryptionType": "KMS"}],
    }
    return declared("aws:ecr/repository:Repository", {**good, **changes}, protect=True)


def store(**changes: Any) -> Resource:
    good = {"transitEncryptionEnabled": True, "atRestEncryptionEnabled": True, "authToken": "t", "kmsKeyId": KEY}
    return declared("aws:elasticache/replicationGroup:ReplicationGroup", {**good, **changes}, protect=True)


def in_subnet(gateway: bool) -> list[Resource]:
    """A node group in a subnet whose route table leads to an internet gateway, or to none."""
    subnet = declared("aws:ec2/subnet:Subnet", name="private-a")
    table = declared("aws:ec2/routeTable:RouteTable")
    way = {"gatewayId": "igw"} if gateway else {"natGatewayId": "nat"}
    route = declared("aws:ec2/route:Route", way, dependencies=[table.urn])
    tied = declared("aws:ec2/routeTableAssociation:RouteTableAssociation", dependencies=[table.urn, subnet.urn])
    nodes = group()
    return [subnet, table, route, tied, replace(nodes, dependencies=[subnet.urn])]


def efa(*ways: str, **changes: Any) -> list[Resource]:
    own = declared("aws:ec2/securityGroup:SecurityGroup", name="groups-efa")
    kinds = [f"aws:vpc/securityGroup{way}Rule:SecurityGroup{way}Rule" for way in ways]
    return [own, *(declared(kind, {**RULE, **changes}, dependencies=[own.urn]) for kind in kinds)]


def bucket(*kinds: str) -> list[Resource]:
    own = declared("aws:s3/bucket:Bucket", protect=True)
    inputs = {"BucketPublicAccessBlock": CLOSED, "BucketPolicy": {"policy": UNKNOWN}}
    return [
        own,
        *(declared(f"aws:s3/{k[0].lower()}{k[1:]}:{k}", inputs.get(k), dependencies=[own.urn]) for k in kinds),
    ]


COMPLETE = ("BucketServerSideEncryptionConfiguration", "BucketPublicAccessBlock", "BucketPolicy")
TLS = policy("Deny", Condition={"Bool": {"aws:SecureTransport": "false"}})
LOGS, ROLE = "aws:cloudwatch/logGroup:LogGroup", "aws:iam/role:Role"
ATTACHED = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
CASES: dict[str, tuple[Resource | list[Resource], Resource | list[Resource]]] = {
    "only-443-open": (
        ingress(cidrIpv4="0.0.0.0/0", fromPort=80, toPort=443),
        [
            ingress(cidrIpv4="0.0.0.0/0", fromPort=443, toPort=443),
            ingress(cidrIpv4="10.0.0.0/16", fromPort=1, toPort=2),
        ],
    ),
    "rules-apart": (
        declared("aws:ec2/securityGroup:SecurityGroup", {"ingress": [{"fromPort": 22}]}),
        declared("aws:ec2/securityGroup:SecurityGroup"),
    ),
    "no-public-subnet": (
        declared("aws:ec2/subnet:Subnet", {"mapPublicIpOnLaunch": True}),
        declared("aws:ec2/subnet:Subnet", {"mapPublicIpOnLaunch": False}),
    ),
    "no-public-node": (template(networkInterfaces=[{"associatePublicIpAddress": "true"}]), template()),
    "private-nodes": (in_subnet(gateway=True), in_subnet(gateway=False)),
    "efa-to-itself": (efa("Ingress"), efa("Ingress", "Egress")),
    "https-only": (listening('[{"HTTP": 80}, {"HTTPS": 443}]'), listening('[{"HTTPS": 443}]')),
    "encrypted-with-the-regions-key": (
        declared(LOGS, {"retentionInDays": 7}),
        declared(LOGS, {"retentionInDays": 7, "kmsKeyId": UNKNOWN}),
    ),
    "queue-encrypted": (
        declared("aws:sqs/queue:Queue"),
        declared("aws:sqs/queue:Queue", {"sqsManagedSseEnabled": True}),
    ),
    "bucket-complete": (bucket("BucketPolicy"), bucket(*COMPLETE)),
    "bucket-closed": (
        declared("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", {**CLOSED, "blockPublicAcls": False}),
        declared("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", CLOSED),
    ),
    "bucket-tls": (
        declared("aws:s3/bucketPolicy:BucketPolicy", {"policy": policy(Action="s3:PutObject")}),
        declared("aws:s3/bucketPolicy:BucketPolicy", {"policy": TLS}),
    ),
    "store-encrypted": (store(authToken=None), store(authToken=UNKNOWN)),
    "secrets-encrypted": (cluster(encryptionConfig={"provider": {"keyArn": KEY}, "resources": []}), cluster()),
    "images-encrypted": (repository(encryptionConfigurations=[]), repository()),
    "disks-encrypted": (template(blockDeviceMappings=[{"ebs": {"encrypted": "false", "kmsKeyId": KEY}}]), template()),
    "logs-end": (declared(LOGS, {"kmsKeyId": KEY}), declared(LOGS, {"kmsKeyId": KEY, "retentionInDays": 30})),
    "tagged": (declared("pulumi:providers:aws", {"defaultTags": {"tags": {"diphase:stack": "s"}}}), provider("prod")),
    "stores-protected": (
        [provider("prod"), replace(store(), protect=False)],
        [provider("dev"), replace(store(), protect=False)],
    ),
    "standard-support": (cluster(upgradePolicy={"supportType": "EXTENDED"}), cluster()),
    "access-entries": (cluster(accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"}), cluster()),
    "immutable-tags": (repository(imageTagMutability="MUTABLE"), repository()),
    "imdsv2": (template(metadataOptions={"httpTokens": "optional"}), template()),
    "tags-of-nodes": (template(tagSpecifications=[{"resourceType": "instance"}]), template()),
    "reservation-used": (
        [template(), group(template(), capacityType="CAPACITY_BLOCK")],
        [template(**RESERVED), group(template(), capacityType="CAPACITY_BLOCK")],
    ),
    "release-pinned": (group(releaseVersion=None), group()),
    "size-ignored": (group(ignored=()), group()),
    "karpenter-nodes": (
        declared(
            "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
            {"spec": {**CLASS, "amiSelectorTerms": [{"alias": "al2023@latest"}]}},
        ),
        declared("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass", {"spec": CLASS}),
    ),
    "no-wildcard-on-wildcard": (
        declared("aws:iam/rolePolicy:RolePolicy", {"policy": policy(Action=["s3:*"], Resource="*")}),
        [
            declared("aws:iam/rolePolicy:RolePolicy", {"policy": policy(Action="s3:*", Resource="arn:aws:s3:::b")}),
            declared("aws:iam/policy:Policy", {"policy": policy(Action="ec2:Describe*", Resource="*")}),
        ],
    ),
    "no-administrators": (
        declared(ATTACHED, {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}),
        declared(ATTACHED, {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"}),
    ),
    "no-open-trust": (
        declared(ROLE, {"assumeRolePolicy": policy(Principal={"AWS": "*"})}),
        declared(ROLE, {"assumeRolePolicy": policy(Principal={"Service": "eks.amazonaws.com"})}),
    ),
}


def broken(resources: Resource | list[Resource]) -> dict[str, list[str]]:
    """What each rule says."""
    found: dict[str, list[str]] = {}
    for rule, one, said in faults(resources if isinstance(resources, list) else [resources]):
        found.setdefault(rule.name, []).append(f"{one.name} {said}")
    return found


def test_every_rule_is_tried() -> None:
    assert set(CASES) == {rule.name for rule in RULES}


@pytest.mark.parametrize("rule", CASES)
def test_what_breaks_a_rule_is_told_with_its_remedy(rule: str) -> None:
    wrong, _ = CASES[rule]
    assert set(broken(wrong)) == {rule}


@pytest.mark.parametrize("rule", CASES)
def test_what_is_right_passes_every_rule(rule: str) -> None:
    _, right = CASES[rule]
    assert broken(right) == {}


@pytest.mark.parametrize(
    ("changes", "made_of", "says"),
    [
        ({"capacityType": "SPOT"}, RESERVED, "is spot, so that its reservation idles"),
        ({"subnetIds": ["private-a-id", "private-b-id"]}, RESERVED, "subnets of several zones"),
        ({}, {**RESERVED, "placement": {"groupName": "g"}}, "has a placement group beside its reservation"),
    ],
)
def test_a_reservation_is_used_where_it_lies(changes: dict[str, Any], made_of: dict[str, Any], says: str) -> None:
    found = broken([template(**made_of), group(template(), **changes)])
    assert any(says in said for said in found["reservation-used"])


def test_a_reservation_of_the_configuration_is_in_a_template() -> None:
    reservation = "cr-0a1b2c3d4e5f60718"
    stack = config({"capacity.decode.purchase": "reservation", "capacity.decode.reservationId": reservation})
    assert list(idle(stack, [template(**RESERVED)])) == []
    assert [said.partition(" ")[0] for said in idle(stack, [template()])] == [reservation]


def test_efa_needs_all_protocols_and_itself() -> None:
    assert "efa-to-itself" in broken(efa("Ingress", "Egress", ipProtocol="tcp"))
    assert "efa-to-itself" in broken(efa("Ingress", "Egress", referencedSecurityGroupId="other-id"))
    unknown = {"securityGroupId": UNKNOWN, "referencedSecurityGroupId": UNKNOWN}
    assert broken(efa("Ingress", "Egress", **unknown)) == {}


def test_what_is_unknown_before_an_update_breaks_nothing() -> None:
    rule = declared("aws:iam/rolePolicy:RolePolicy", {"policy": UNKNOWN})
    nodes = group(template(), subnetIds=UNKNOWN, releaseVersion=UNKNOWN)
    assert broken([template(**RESERVED), nodes, rule, cluster(encryptionConfig=UNKNOWN)]) == {}
