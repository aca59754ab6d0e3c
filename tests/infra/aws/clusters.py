"""A cluster as a stack would declare it, for the tests of its parts."""

from __future__ import annotations

import pulumi

from infra.aws.addons import Addons, AddonsArgs, addon_workloads
from infra.aws.cluster import Cluster, ClusterArgs
from infra.aws.identity import Identity, IdentityArgs
from infra.aws.permissions.statement import Place
from infra.config import StackConfig
from tests.infra.aws.recorder import ACCOUNT, REGION, Graph, record
from tests.infra.aws.terraform import Provider

PLACE = Place("aws", REGION, ACCOUNT)
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"
NAME = "diphase-test"
DEPLOY = f"arn:aws:iam::{ACCOUNT}:role/deploy"
ZONES = (f"{REGION}a", f"{REGION}b")
AUTHORITY = "LS0tLS1CRUdJTg=="
OUTPUTS = {"cluster": {"certificateAuthority": {"data": AUTHORITY}, "endpoint": "https://0123.eks.amazonaws.com"}}


def declared(provider: Provider, *, deploy_role: str | None = DEPLOY, protect: bool = True, **cluster: object) -> Graph:
    """The cluster, a node after it, and what comes after nodes; `user` gets its kubeconfig."""
    config = StackConfig.parse({"target": "local", "cluster": cluster}).cluster
    subnets = {zone: f"subnet-0{zone[-1]}" for zone in ZONES}
    pods = {zone: f"subnet-1{zone[-1]}" for zone in ZONES}
    args = ClusterArgs(config, PLACE, NAME, KEY, 90, deploy_role, subnets, pods, "sg-0control", "sg-0nodes", protect)

    def program() -> None:
        made = Cluster("cluster", args)
        waits = pulumi.ResourceOptions(depends_on=list(made.ready))
        node = pulumi.CustomResource("test:index:Node", "node", {}, opts=waits)
        workloads = addon_workloads("aws", KEY)
        identity = Identity("identity", IdentityArgs(made.name, workloads, PLACE, made.agent))
        Addons("addons", AddonsArgs(config.addons, made.name, [node], identity.associations))
        pulumi.CustomResource("test:index:User", "user", {"kubeconfig": made.kubeconfig})

    return record(provider, program, OUTPUTS)
