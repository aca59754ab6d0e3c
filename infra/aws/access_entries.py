"""Who may do what in the cluster: an entry for each role that is named, and nothing for whoever made the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import eks

from infra.kubernetes.names import MANIFEST

# Amazon EKS User Guide, "Review access policy permissions". AmazonEKSAdminViewPolicy shows Secrets too, so readers have
# AmazonEKSViewPolicy, which knows what is in namespaces only; the rest is by READERS.
ADMIN, VIEW = "AmazonEKSClusterAdminPolicy", "AmazonEKSViewPolicy"
READERS = "diphase:readers"
READER = "diphase-reader"
LOOK = ["get", "list", "watch"]
# What readers see beside: nodes and storage, and the kinds that the charts bring.
SEEN: Mapping[str, Sequence[str]] = {
    "": ["nodes", "persistentvolumes"],
    "storage.k8s.io": ["storageclasses", "csinodes", "volumeattachments"],
    "scheduling.k8s.io": ["priorityclasses"],
    "apiextensions.k8s.io": ["customresourcedefinitions"],
    "metrics.k8s.io": ["nodes", "pods"],
    "karpenter.sh": ["*"],
    "karpenter.k8s.aws": ["*"],
    "keda.sh": ["*"],
    "cert-manager.io": ["*"],
    "monitoring.coreos.com": ["*"],
    "elbv2.k8s.aws": ["*"],
    "crd.k8s.amazonaws.com": ["eniconfigs"],
    "networking.k8s.aws": ["policyendpoints"],
}


@dataclass(frozen=True)
class AccessEntriesArgs:
    """`cluster` is its name; all others are ARNs of IAM roles. `deploy_role` is an admin like `admins`."""

    cluster: pulumi.Input[str]
    partition: pulumi.Input[str]
    deploy_role: str | None
    admins: Sequence[str]
    readers: Sequence[str]
    node_role: pulumi.Input[str]


class AccessEntries(pulumi.ComponentResource):
    """`nodes` is what nodes need to join; `deployer` what `up` needs to make objects in the cluster."""

    nodes: pulumi.Resource
    deployer: Sequence[eks.AccessPolicyAssociation]

    def __init__(self, name: str, args: AccessEntriesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:AccessEntries", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        admins = list(dict.fromkeys([*([args.deploy_role] if args.deploy_role else []), *args.admins]))
        made = [self._entry(principal, ADMIN) for principal in admins]
        # Of the others none is waited for: a new admin must not make the cluster's address unknown in a preview.
        self.deployer = made[:1] if args.deploy_role else made
        for principal in args.readers:
            if principal != args.deploy_role:
                self._entry(principal, VIEW, [READERS])
        self.nodes = eks.AccessEntry(
            f"{name}-nodes",
            cluster_name=args.cluster,
            principal_arn=args.node_role,
            type="EC2_LINUX",
            opts=self._child,
        )
        self.register_outputs({})

    def _entry(self, principal: str, policy: str, groups: Sequence[str] = ()) -> eks.AccessPolicyAssociation:
        # The account and the role: two accounts may have a role of one name.
        name = f"{self._name}-{principal.split(':', 4)[4].replace(':', '-').replace('/', '-')}"
        entry = eks.AccessEntry(
            name,
            cluster_name=self._args.cluster,
            principal_arn=principal,
            kubernetes_groups=list(groups) or None,
            type="STANDARD",
            opts=self._child,
        )
        return eks.AccessPolicyAssociation(
            name,
            cluster_name=self._args.cluster,
            principal_arn=entry.principal_arn,
            policy_arn=pulumi.Output.concat("arn:", self._args.partition, ":eks::aws:cluster-access-policy/", policy),
            access_scope=eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
            opts=self._child,
        )


def reader_objects() -> Iterator[MANIFEST]:
    """What the readers' group may see of the cluster itself, as objects to declare in it."""
    api, metadata = "rbac.authorization.k8s.io", {"name": READER}
    rules = [{"apiGroups": [group], "resources": list(kinds), "verbs": LOOK} for group, kinds in SEEN.items()]
    yield {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    yield {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": READER},
        "subjects": [{"apiGroup": api, "kind": "Group", "name": READERS}],
    }
