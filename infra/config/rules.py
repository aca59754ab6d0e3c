"""Rules between groups of a configuration, and what each target asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from infra.config.aws import rules as aws
from infra.config.pods import mib

# What Kubernetes takes as a label's value.
LABEL = re.compile(r"[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")

if TYPE_CHECKING:
    from infra.config.stack import StackConfig


def faults(config: StackConfig) -> Iterator[str]:
    """A sentence for each rule that is broken, beginning with the key."""
    if config.prefill.max_batch_tokens <= config.engine.max_running:
        yield (
            f"prefill.maxBatchTokens ({config.prefill.max_batch_tokens}) must exceed engine.maxRunning "
            f"({config.engine.max_running}): a step computes at least one token of every running sequence"
        )
    yield from {"local": _local, "kubernetes": _kubernetes, "aws": _aws}[config.target](config)


def _local(config: StackConfig) -> Iterator[str]:
    if config.autoscaling.scaled:
        role = next(iter(config.autoscaling.scaled))
        yield f"autoscaling.{role} is for the kubernetes target; leave it out, and set replicas"
    if config.gateway.replicas > 1:
        yield f"gateway.replicas is {config.gateway.replicas}; the local target runs one gateway"


def _kubernetes(config: StackConfig) -> Iterator[str]:
    kubernetes = config.kubernetes
    if kubernetes.context is None:
        yield "kubernetes.context is missing; `kubectl config get-contexts` lists those of the kubeconfig"
    volume = kubernetes.model_volume
    if not (volume.claim or volume.host_path or volume.fetch):
        yield "kubernetes.modelVolume needs claim, hostPath or fetch: where pods find the model"
    yield from _workloads(config)


def _aws(config: StackConfig) -> Iterator[str]:
    yield from aws.faults(config)
    kubernetes = config.kubernetes
    if kubernetes.context is not None:
        yield "kubernetes.context is for the kubernetes target; leave it out, for the stack makes its own cluster"
    # An empty account has no registry yet: the region comes first, then the images, then what runs them.
    if config.serves:
        yield from _workloads(config)


def _workloads(config: StackConfig) -> Iterator[str]:
    kubernetes = config.kubernetes
    for role, reference in config.images.digests:
        if reference is None:
            yield f"images.digests.{role} is missing; `diphase images push` builds the images and says their digests"
    for key, value in (("name", config.model.name), ("revision", config.model.revision)):
        if value is None:
            yield f"model.{key} is missing; the {config.target} target cannot look into the volume that holds the model"
    if config.model.revision and not LABEL.fullmatch(config.model.revision):
        yield (
            f"model.revision is {config.model.revision!r}; pods carry it as a label, so it has up to 63 letters, "
            "digits, '-', '_' and '.', such as a commit"
        )
    if kubernetes.entry.service_type == "NodePort" and not (kubernetes.entry.host or kubernetes.entry.addresses):
        yield "kubernetes.entry.serviceType NodePort needs host or addresses: where clients reach the nodes"
    if config.kv.transport == "shm":
        yield "kv.transport is shm; pods share no memory, so leave it out or set it to tcp"
    for phase, pod in (("prefill", kubernetes.prefill), ("decode", kubernetes.decode)):
        if mib(pod.memory) <= config.kv.pool_mib + pod.shared_memory_mib:
            yield (
                f"kubernetes.{phase}.memory ({pod.memory}) must hold kv.poolMib ({config.kv.pool_mib}), "
                f"sharedMemoryMib ({pod.shared_memory_mib}) and the model"
            )
    yield from _autoscaling(config)


def _autoscaling(config: StackConfig) -> Iterator[str]:
    autoscaling, kubernetes = config.autoscaling, config.kubernetes
    for role, scaling in autoscaling.scaled.items():
        key = f"autoscaling.{role}"
        if role in kubernetes.autoscaled:
            yield f"kubernetes.autoscaled lists {role}, which {key} scales; leave it out of one of the two"
        replicas = getattr(config, role).replicas
        if not scaling.min <= replicas <= scaling.max:
            yield (
                f"{role}.replicas ({replicas}), the number to begin with, must lie between {key}.min ({scaling.min}) "
                f"and {key}.max ({scaling.max})"
            )
        if scaling.off_peak and autoscaling.kind == "hpa":
            yield f"{key}.offPeak needs autoscaling.kind keda: a HorizontalPodAutoscaler knows no hours"
    if not autoscaling.scaled:
        return
    if autoscaling.kind == "keda" and not autoscaling.prometheus_url:
        yield "autoscaling.prometheusUrl is missing; KEDA asks it, such as http://prometheus.monitoring.svc:9090"
    if not kubernetes.monitoring_namespace:
        yield (
            "kubernetes.monitoringNamespace is missing; autoscaling needs the metrics of the pods, which only the "
            "Prometheus in that namespace may read"
        )
