"""The EKS cluster: its control plane, its log, who may reach it, and what is in it before the first node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudwatch, eks, iam

from infra.aws.access_entries import AccessEntries, AccessEntriesArgs
from infra.aws.addon import addon
from infra.aws.kubeconfig import kubeconfig
from infra.aws.node_role import NodeRole, NodeRoleArgs
from infra.aws.permissions.statement import Place, trusting
from infra.aws.pod_network import PodNetwork, PodNetworkArgs
from infra.config.aws.cluster import Cluster as ClusterConfig

POLICY = "AmazonEKSClusterPolicy"


@dataclass(frozen=True)
class ClusterArgs:
    """`name` is the cluster's in EKS, `key` an ARN. `subnets` are those of the control plane's interfaces and
    `pod_subnets` the pods', ids by zone; the groups are ids of security groups."""

    config: ClusterConfig
    place: Place
    name: str
    key: pulumi.Input[str]
    log_days: int
    deploy_role: str | None
    subnets: Mapping[str, pulumi.Input[str]]
    pod_subnets: Mapping[str, pulumi.Input[str]]
    control_plane_group: pulumi.Input[str]
    node_group: pulumi.Input[str]
    protect: bool


class Cluster(pulumi.ComponentResource):
    """`ready` is what nodes wait for, `agent` the add-on that hands credentials to pods; `authority` is the base64 of
    its CA's certificate. `kubeconfig` is known when whoever runs `up` may use it."""

    name: pulumi.Output[str]
    arn: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    authority: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    agent: pulumi.Resource
    node_role: pulumi.Output[str]
    node_role_name: pulumi.Output[str]
    ready: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Cluster", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        cluster = self._control_plane()
        self.name, self.arn, self.endpoint = cluster.name, cluster.arn, cluster.endpoint
        self.authority = cluster.certificate_authority.apply(lambda found: str(found.data))
        role = NodeRole(f"{name}-nodes", NodeRoleArgs(args.place), self._child)
        self.node_role, self.node_role_name = role.arn, role.role_name
        entries = self._entries()
        builds = args.config.addons
        self.agent = addon(name, "eks-pod-identity-agent", builds.pod_identity, self.name, self)
        proxy = addon(name, "kube-proxy", builds.kube_proxy, self.name, self)
        network = PodNetworkArgs(args.place, builds.vpc_cni, self.name, args.pod_subnets, args.node_group)
        pods = PodNetwork(f"{name}-pods", network, self._child)
        self.ready = [self.agent, proxy, pods.addon, entries.nodes, *role.given]
        self.kubeconfig = self._kubeconfig(entries)
        self.register_outputs({"name": self.name, "arn": self.arn, "endpoint": self.endpoint})

    def _control_plane(self) -> eks.Cluster:
        args, config = self._args, self._args.config
        # EKS would make it without an end; it outlives the cluster, which writes until it is gone.
        log = cloudwatch.LogGroup(
            f"{self._name}-log",
            name=f"/aws/eks/{args.name}/cluster",
            retention_in_days=args.log_days,
            kms_key_id=args.key,
            opts=self._child,
        )
        role = iam.Role(
            self._name,
            path="/diphase/",
            description="control plane of the cluster",
            assume_role_policy=trusting("eks.amazonaws.com"),
            opts=self._child,
        )
        policy = pulumi.Output.concat("arn:", args.place.partition, ":iam::aws:policy/", POLICY)
        allowed = iam.RolePolicyAttachment(self._name, role=role.name, policy_arn=policy, opts=self._child)
        return eks.Cluster(
            self._name,
            name=args.name,
            version=config.version,
            role_arn=role.arn,
            # Entries alone: no ConfigMap decides, and whoever makes the cluster gets nothing by that.
            access_config=eks.ClusterAccessConfigArgs(
                authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
            ),
            vpc_config=eks.ClusterVpcConfigArgs(
                subnet_ids=list(args.subnets.values()),
                security_group_ids=[args.control_plane_group],
                endpoint_private_access=True,
                endpoint_public_access=bool(config.public_cidrs),
                public_access_cidrs=config.public_cidrs or None,
            ),
            kubernetes_network_config=eks.ClusterKubernetesNetworkConfigArgs(service_ipv4_cidr=config.service_cidr),
            encryption_config=eks.ClusterEncryptionConfigArgs(
                provider=eks.ClusterEncryptionConfigProviderArgs(key_arn=args.key), resources=["secrets"]
            ),
            enabled_cluster_log_types=list(config.log_types),
            # Extended support costs 0.60 USD an hour instead of 0.10 (Amazon EKS pricing); so EKS updates the version
            # when standard support ends.
            upgrade_policy=eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
            bootstrap_self_managed_addons=False,
            deletion_protection=args.protect,
            # Without its policy EKS can't take its interfaces away again.
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect, depends_on=[log, allowed]),
        )

    def _entries(self) -> AccessEntries:
        args = self._args
        entries = AccessEntriesArgs(
            self.name,
            args.place.partition,
            args.deploy_role,
            args.config.admins,
            args.config.readers,
            self.node_role,
        )
        return AccessEntries(f"{self._name}-access", entries, self._child)

    def _kubeconfig(self, entries: AccessEntries) -> pulumi.Output[str]:
        stack, name, role = pulumi.get_stack(), self._args.name, self._args.deploy_role
        known = [self.endpoint, self.authority, self._args.place.region, *[one.id for one in entries.deployer]]
        return pulumi.Output.all(*known).apply(
            lambda found: kubeconfig(stack, name, str(found[2]), str(found[0]), str(found[1]), role)
        )
