"""What the AWS Load Balancer Controller may do.

As docs/install/iam_policy.json of kubernetes-sigs/aws-load-balancer-controller has it: it reads widely, makes what it
tags as its cluster's, and changes only what carries that tag. Left out is what this project does itself or not at all:
Shield, WAF Classic, making certificates.
"""

from __future__ import annotations

from collections.abc import Iterator

import pulumi

from infra.aws.permissions.statement import Place, Statement

TAG = "elbv2.k8s.aws/cluster"
READS = (
    "ec2:DescribeAccountAttributes",
    "ec2:DescribeAddresses",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInternetGateways",
    "ec2:DescribeVpcs",
    "ec2:DescribeVpcPeeringConnections",
    "ec2:DescribeSubnets",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeTags",
    "ec2:DescribeRouteTables",
    "ec2:GetSecurityGroupsForVpc",
    "elasticloadbalancing:DescribeLoadBalancers",
    "elasticloadbalancing:DescribeLoadBalancerAttributes",
    "elasticloadbalancing:DescribeListeners",
    "elasticloadbalancing:DescribeListenerAttributes",
    "elasticloadbalancing:DescribeListenerCertificates",
    "elasticloadbalancing:DescribeSSLPolicies",
    "elasticloadbalancing:DescribeRules",
    "elasticloadbalancing:DescribeTargetGroups",
    "elasticloadbalancing:DescribeTargetGroupAttributes",
    "elasticloadbalancing:DescribeTargetHealth",
    "elasticloadbalancing:DescribeTags",
    "elasticloadbalancing:DescribeCapacityReservation",
    "acm:ListCertificates",
    "acm:DescribeCertificate",
    "wafv2:GetWebACL",
    "wafv2:GetWebACLForResource",
)
CHANGES = (
    "elasticloadbalancing:ModifyLoadBalancerAttributes",
    "elasticloadbalancing:SetIpAddressType",
    "elasticloadbalancing:SetSecurityGroups",
    "elasticloadbalancing:SetSubnets",
    "elasticloadbalancing:DeleteLoadBalancer",
    "elasticloadbalancing:ModifyTargetGroup",
    "elasticloadbalancing:ModifyTargetGroupAttributes",
    "elasticloadbalancing:DeleteTargetGroup",
)
LISTENERS = (
    "elasticloadbalancing:CreateListener",
    "elasticloadbalancing:DeleteListener",
    "elasticloadbalancing:ModifyListener",
    "elasticloadbalancing:ModifyListenerAttributes",
    "elasticloadbalancing:AddListenerCertificates",
    "elasticloadbalancing:RemoveListenerCertificates",
    "elasticloadbalancing:CreateRule",
    "elasticloadbalancing:DeleteRule",
    "elasticloadbalancing:ModifyRule",
    "elasticloadbalancing:SetRulePriorities",
)
GROUPS = ("ec2:AuthorizeSecurityGroupIngress", "ec2:RevokeSecurityGroupIngress", "ec2:DeleteSecurityGroup")


def statements(place: Place, cluster: pulumi.Input[str], vpc: pulumi.Input[str]) -> Iterator[Statement]:
    """Its statements, for the cluster of this name and the VPC (its ARN) that the cluster lies in."""
    ours = {"StringEquals": {f"aws:ResourceTag/{TAG}": cluster}}
    tagged = {"StringEquals": {f"aws:RequestTag/{TAG}": cluster}}
    balancers = [place.arn("elasticloadbalancing", f"loadbalancer/{kind}/*") for kind in ("app", "net")]
    targets = [place.arn("elasticloadbalancing", "targetgroup/*")]
    rules = [
        place.arn("elasticloadbalancing", f"{what}/{kind}/*")
        for what in ("listener", "listener-rule")
        for kind in ("app", "net")
    ]
    groups = [place.arn("ec2", "security-group/*")]
    yield Statement("Read", READS)
    yield Statement(
        "LinkedRole",
        ["iam:CreateServiceLinkedRole"],
        [place.global_arn("iam", "role/aws-service-role/elasticloadbalancing.amazonaws.com/*")],
        {"StringEquals": {"iam:AWSServiceName": "elasticloadbalancing.amazonaws.com"}},
    )
    yield Statement("GroupIn", ["ec2:CreateSecurityGroup"], [vpc])
    yield Statement("Group", ["ec2:CreateSecurityGroup"], groups, tagged)
    yield Statement(
        "TagNewGroup",
        ["ec2:CreateTags"],
        groups,
        {"StringEquals": {"ec2:CreateAction": "CreateSecurityGroup", **tagged["StringEquals"]}},
    )
    yield Statement("TagGroup", ["ec2:CreateTags", "ec2:DeleteTags"], groups, ours)
    yield Statement("ChangeGroup", GROUPS, groups, ours)
    make = ["elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateTargetGroup"]
    yield Statement("Make", make, [*balancers, *targets], tagged)
    yield Statement(
        "TagNew",
        ["elasticloadbalancing:AddTags"],
        [*balancers, *targets],
        {
            "StringEquals": {
                "elasticloadbalancing:CreateAction": ["CreateTargetGroup", "CreateLoadBalancer"],
                **tagged["StringEquals"],
            }
        },
    )
    tag = ["elasticloadbalancing:AddTags", "elasticloadbalancing:RemoveTags"]
    yield Statement("Tag", tag, [*balancers, *targets], ours)
    yield Statement("TagRules", tag, rules)
    yield Statement("Change", CHANGES, [*balancers, *targets], ours)
    yield Statement("Listen", LISTENERS, [*balancers, *rules])
    yield Statement(
        "Register", ["elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets"], targets
    )
    acl = ["wafv2:AssociateWebACL", "wafv2:DisassociateWebACL", "elasticloadbalancing:SetWebAcl"]
    yield Statement("Firewall", acl, [*balancers, place.arn("wafv2", "regional/webacl/*")])
