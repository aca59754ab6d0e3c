"""A stack's whole configuration: the only reader of pulumi.Config.

Everything wrong is said at once, before any resource is made: each key, what is wrong with it, and what it may be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import pulumi
from pulumi.runtime.config import CONFIG
from pydantic import Field, ValidationError

from infra.config import rules
from infra.config.autoscaling import Autoscaling
from infra.config.aws.capacity import Capacity
from infra.config.aws.charts import Charts
from infra.config.aws.cluster import Cluster
from infra.config.aws.defaults import filled
from infra.config.aws.edge import Edge
from infra.config.aws.monitoring import Monitoring
from infra.config.aws.network import Network
from infra.config.aws.region import Region
from infra.config.aws.registry import Registry
from infra.config.aws.storage import Storage
from infra.config.faults import ConfigError, sentence
from infra.config.group import NAMESPACE, Group
from infra.config.kubernetes import Images, Kubernetes
from infra.config.local import Local
from infra.config.service import Decode, Engine, Gateway, Kv, Model, Objectives, Prefill, Scheduler


class StackConfig(Group):
    """Everything that a stack's file may set, under `diphase:`."""

    target: Literal["local", "kubernetes", "aws"] = Field(description="where the roles run")
    model: Model = Model()
    engine: Engine = Engine()
    prefill: Prefill = Prefill()
    decode: Decode = Decode()
    kv: Kv = Kv()
    scheduler: Scheduler = Scheduler()
    gateway: Gateway = Gateway()
    objectives: Objectives = Objectives()
    local: Local = Local()
    images: Images = Images()
    kubernetes: Kubernetes = Kubernetes()
    autoscaling: Autoscaling = Autoscaling()
    region: Region = Region()
    network: Network = Network()
    cluster: Cluster = Cluster()
    capacity: Capacity = Capacity()
    storage: Storage = Storage()
    registry: Registry = Registry()
    edge: Edge = Edge()
    monitoring: Monitoring = Monitoring()
    charts: Charts = Charts()

    @property
    def serves(self) -> bool:
        """Whether there is anything to run: an aws stack without images is the region alone."""
        return self.target != "aws" or any(reference for _, reference in self.images.digests)

    @classmethod
    def load(cls) -> StackConfig:
        """The configuration of the stack that Pulumi runs; raises ConfigError."""
        config = pulumi.Config(NAMESPACE)
        names = sorted(key.removeprefix(f"{NAMESPACE}:") for key in CONFIG.get() if key.startswith(f"{NAMESPACE}:"))
        return cls.parse({name: _value(config, name) for name in names})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> StackConfig:
        """The configuration in a mapping of groups; raises ConfigError with every fault."""
        try:
            config = cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError([sentence(cls, dict(fault)) for fault in error.errors()]) from None
        broken = [f"{NAMESPACE}:{fault}" for fault in rules.faults(config)]
        if broken:
            raise ConfigError(broken)
        return filled(config) if config.target == "aws" else config


def _value(config: pulumi.Config, name: str) -> Any:
    text = config.require(name)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
