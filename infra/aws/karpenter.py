"""Nodes that Karpenter makes when pods want them: the queue that warns it, what it may do, its classes and pools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, sqs

from infra.aws.efa import interfaces
from infra.aws.identity import Workload
from infra.aws.launch_templates import ROOT
from infra.aws.permissions import karpenter
from infra.aws.permissions.statement import ANY, Place, Statement, document
from infra.aws.pools import in_zone, kubernetes_version, labels, taints
from infra.aws.user_data import MOST_PODS
from infra.config.aws.capacity import Capacity, GpuPool, PoolName
from infra.hardware import instance_type

NAMESPACE, SERVICE_ACCOUNT = "kube-system", "karpenter"
CLASS_API, POOL_API = "karpenter.k8s.aws/v1", "karpenter.sh/v1"
# What it hears of (Karpenter, "Disruption", interruption): name → source and detail-type of the event.
EVENTS: Mapping[str, tuple[str, str]] = {
    "health": ("aws.health", "AWS Health Event"),
    "spot": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "rebalance": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "state": ("aws.ec2", "EC2 Instance State-change Notification"),
    "reservation": ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
}
KEPT_SECONDS = 300  # a warning of two minutes is of no use to anybody later
CAPACITY_TYPES = {"onDemand": "on-demand", "reservation": "reserved", "block": "reserved", "spot": "spot"}
IDLE = "10m"  # how long an empty node stays, for the next burst


@dataclass(frozen=True)
class KarpenterArgs:
    """`node_role` is an ARN, `key` too; `subnets`, by zone, and `groups`, security groups, are ids."""

    capacity: Capacity
    place: Place
    cluster: pulumi.Input[str]
    node_role: pulumi.Input[str]
    node_role_name: pulumi.Input[str]
    subnets: Mapping[str, pulumi.Input[str]]
    groups: Mapping[str, pulumi.Input[str]]
    key: pulumi.Input[str]
    tags: Mapping[str, str]


class Karpenter(pulumi.ComponentResource):
    """`queue` is the ARN of the queue of interruptions."""

    queue: pulumi.Output[str]
    queue_name: pulumi.Output[str]

    def __init__(self, name: str, args: KarpenterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Karpenter", name, None, opts)
        self._args, child = args, pulumi.ResourceOptions(parent=self)
        # By SQS's own key, as Karpenter's template has it: nothing but ids of instances passes.
        queue = sqs.Queue(name, message_retention_seconds=KEPT_SECONDS, sqs_managed_sse_enabled=True, opts=child)
        self.queue, self.queue_name = queue.arn, queue.name
        rules = [self._rule(f"{name}-{event}", *pattern) for event, pattern in EVENTS.items()]
        from_rules = {"ArnEquals": {"aws:SourceArn": [rule.arn for rule in rules]}}
        service, plain = {"Service": "events.amazonaws.com"}, {"Bool": {"aws:SecureTransport": "false"}}
        policy = [
            Statement("Events", ["sqs:SendMessage"], [queue.arn], from_rules, principal=service),
            Statement("TlsOnly", ["sqs:*"], [queue.arn], plain, effect="Deny", principal=ANY),
        ]
        sqs.QueuePolicy(name, queue_url=queue.url, policy=document(policy), opts=child)
        self.register_outputs({"queue": self.queue_name})

    def workload(self) -> Workload:
        """Its pods, and what they may do."""
        args = self._args
        allowed = karpenter.statements(args.place, args.cluster, args.node_role, self.queue, args.key)
        return Workload(NAMESPACE, SERVICE_ACCOUNT, list(allowed))

    def _rule(self, name: str, source: str, kind: str) -> cloudwatch.EventRule:
        pattern = pulumi.Output.json_dumps({"source": [source], "detail-type": [kind]})
        under = pulumi.ResourceOptions(parent=self)
        rule = cloudwatch.EventRule(name, description=f"for Karpenter: {kind}", event_pattern=pattern, opts=under)
        cloudwatch.EventTarget(name, rule=rule.name, arn=self.queue, opts=under)
        return rule


def karpenter_objects(args: KarpenterArgs) -> Iterator[dict[str, Any]]:
    """A class of nodes and a pool, in that order, for each pool whose nodes Karpenter makes."""
    for name, pool in args.capacity.gpu_pools.items():
        if pool.provisioner == "karpenter":
            yield _node_class(name, pool, args)
            yield _node_pool(name, pool)


def _node_class(name: PoolName, pool: GpuPool, args: KarpenterArgs) -> dict[str, Any]:
    reserved = {"capacityReservationSelectorTerms": [{"id": pool.reservation_id}]} if pool.reservation_id else {}
    disk = {
        "volumeType": "gp3",
        "volumeSize": f"{pool.disk_gib}Gi",
        "throughput": pool.disk_throughput,
        "iops": pool.disk_iops,
        "encrypted": True,
        "kmsKeyID": args.key,
        "deleteOnTermination": True,
    }
    # One list for all interfaces, so that the primary one is in both groups.
    fabric = ["efa"] if instance_type(pool.instance_type).efa_interfaces else []
    spec = {
        "role": args.node_role_name,
        "amiFamily": "AL2023",
        "amiSelectorTerms": [{"ssmParameter": image_parameter(pool)}],
        "subnetSelectorTerms": [{"id": subnet} for subnet in in_zone(args.subnets, pool)],
        "securityGroupSelectorTerms": [{"id": args.groups[group]} for group in ("nodes", *fabric)],
        "networkInterfaces": [
            {"networkCardIndex": one.card, "deviceIndex": one.device, "interfaceType": one.kind}
            for one in interfaces(pool.instance_type)
        ],
        "associatePublicIPAddress": False,
        "instanceStorePolicy": "RAID0",
        "blockDeviceMappings": [{"deviceName": ROOT, "rootVolume": True, "ebs": disk}],
        "metadataOptions": {"httpEndpoint": "enabled", "httpTokens": "required", "httpPutResponseHopLimit": 1},
        "kubelet": {"maxPods": MOST_PODS},
        "tags": dict(args.tags),
        **reserved,
    }
    return {"apiVersion": CLASS_API, "kind": "EC2NodeClass", "metadata": {"name": name}, "spec": spec}


def image_parameter(pool: GpuPool) -> str:
    """Where AWS says which image a release is: unlike the newest one's, this parameter never changes (EKS User Guide,
    "Retrieve recommended Amazon Linux AMI IDs")."""
    version, date = kubernetes_version(pool), pool.ami_release.rpartition("-")[2]
    image = f"amazon-eks-node-al2023-x86_64-nvidia-{version}-v{date}"
    return f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/nvidia/{image}/image_id"


def _node_pool(name: PoolName, pool: GpuPool) -> dict[str, Any]:
    wanted = {
        "node.kubernetes.io/instance-type": pool.instance_type,
        "karpenter.sh/capacity-type": CAPACITY_TYPES[pool.purchase],
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        **({"topology.kubernetes.io/zone": pool.zone} if pool.zone else {}),
    }
    node = {
        "nodeClassRef": {"group": CLASS_API.partition("/")[0], "kind": "EC2NodeClass", "name": name},
        "requirements": [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()],
        "taints": [{"key": one.key, "value": one.value, "effect": "NoSchedule"} for one in taints(name, pool)],
        # It would end nodes of a certain age, with whatever streams on them.
        "expireAfter": "Never",
    }
    spec = {
        "template": {"metadata": {"labels": labels(name, pool)}, "spec": node},
        "limits": {"nvidia.com/gpu": str(pool.max * instance_type(pool.instance_type).gpus)},
        # Nodes without pods only, and one at a time where a new release rolls them: no stream moves to save money.
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": IDLE, "budgets": [{"nodes": "1"}]},
    }
    return {"apiVersion": POOL_API, "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
