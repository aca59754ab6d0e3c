"""The settings of every role: the only place where an environment variable is named.

A field's environment variable is its name in capitals (`kv_ttl_seconds` is `KV_TTL_SECONDS`). A role reads its
settings once, at start, with `from_environ`; whoever starts a role writes them with `to_environ`. So a name exists
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

Phase = Literal["prefill", "decode"]
Transport = Literal["shm", "tcp"]
Dtype = Literal["float32", "bfloat16"]


class SettingsError(Exception):
    """The environment of a role is wrong; the message names each variable and what it must be."""


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _base_url(value: str) -> str:
    parts = urlsplit(value)
    try:
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{value!r} is no base URL: write http://HOST:PORT or https://HOST:PORT")
    return value


def _found_url(value: str) -> str:
    found = value.removeprefix(DISCOVERED)
    _base_url(found)
    if found != value and (urlsplit(found).port is None or urlsplit(found).path not in ("", "/")):
        raise ValueError(f"{value!r}: write dns+http://NAME:PORT or dns+https://NAME:PORT, without a path")
    return value


DISCOVERED = "dns+"  # before a URL's scheme: it stands for every address of its name, asked again and again
NOWHERE = ("0.0.0.0", "::")  # noqa: S104 - a server listens there, a client reaches nobody
Url = Annotated[str, AfterValidator(_base_url)]
Urls = Annotated[tuple[Annotated[str, AfterValidator(_found_url)], ...], BeforeValidator(_split), Field(min_length=1)]


class RoleSettings(BaseModel):
    """What every role has."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    instance: str = Field(description="unique name of this process in its stack, such as decode-worker-0")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(ge=1, le=65535, description="port to listen on")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    drain_seconds: float = Field(30.0, ge=0, description="after SIGTERM, how long running requests may take to end")
    exit_with_parent: bool = Field(False, description="end when the supervising process dies (Linux)")
    tls_folder: Path | None = Field(
        None,
        description="folder with tls.crt, tls.key and ca.crt: roles speak TLS to each other and show certificates of "
        "the CA; they may be replaced while the role runs",
    )
    probe_port: int | None = Field(
        None, ge=1, le=65535, description="second port, without TLS, with /health, /ready and /metrics alone"
    )

    def faults(self) -> Iterator[str]:
        """What is wrong between settings, each with the variable's name."""
        if self.probe_port == self.port:
            yield f"PROBE_PORT: {self.port} is also PORT: probes need a port of their own"

    def _without_tls(self, **urls: str) -> Iterator[str]:
        for name, url in urls.items():
            if self.tls_folder is not None and urlsplit(url.removeprefix(DISCOVERED)).scheme != "https":
                yield f"{name.upper()}: {url} has no TLS although TLS_FOLDER is set: write https, or unset TLS_FOLDER"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        faults = list(self.faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings; raises SettingsError naming every variable that is missing or wrong."""
        values = {name: environ[name.upper()] for name in cls.model_fields if environ.get(name.upper(), "") != ""}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise SettingsError("; ".join(_told(e["loc"], e["msg"]) for e in error.errors())) from None

    def to_environ(self) -> dict[str, str]:
        """The variables that reproduce these settings; those at their default are left out."""
        out = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if value is None:
                continue
            out[name.upper()] = (
                ",".join(value)
                if isinstance(value, tuple)
                else str(value).lower()
                if isinstance(value, bool)
                else str(value)
            )
        return dict(sorted(out.items()))


def _told(location: tuple[int | str, ...], message: str) -> str:
    message = message.removeprefix("Value error, ")
    return f"{location[0]}: ".upper() + message if location else message


class ModelSettings(BaseModel):
    """Which model a role serves; gateway and workers must agree."""

    model_path: Path = Field(description="folder with config.json, tokenizer.json and, for workers, *.safetensors")
    model_name: str = Field(description="the name that clients use")
    model_revision: str = Field("main", description="only workers of one revision are paired")
    max_model_len: int = Field(8192, ge=64, description="tokens of prompt and answer together")


class GatewaySettings(ModelSettings, RoleSettings):
    """The OpenAI front."""

    scheduler_urls: Urls
    gateway_api_keys_file: Path = Field(description='JSON list of {"name", "sha256"}: the hash of each key')
    decode_max_tokens: int = Field(2048, ge=1, description="most tokens one answer may have; the default of max_tokens")
    gateway_max_body_bytes: int = Field(4 * 1024 * 1024, ge=1024)
    gateway_max_inflight: int = Field(1024, ge=1, description="requests at once; more get 429")
    gateway_request_timeout_seconds: float = Field(300.0, gt=0, description="a request's deadline, queueing included")
    gateway_body_timeout_seconds: float = Field(30.0, gt=0, description="how long a client may take to send its body")
    gateway_keepalive_seconds: float = Field(15.0, gt=0, description="silence after which a stream gets an SSE comment")
    gateway_tls_folder: Path | None = Field(
        None,
        description="folder with tls.crt and tls.key, the certificate that clients see; may be replaced while it runs",
    )

    def faults(self) -> Iterator[str]:
        """What is wrong between settings."""
        yield from super().faults()
        for url in self.scheduler_urls:
            yield from self._without_tls(scheduler_urls=url)


class SchedulerSettings(RoleSettings):
    """Who serves a request."""

    scheduler_max_queue: int = Field(256, ge=0, description="requests that may wait for a worker; more get 429")
    scheduler_heartbeat_timeout_seconds: float = Field(2.5, gt=0, description="silence after which a worker is absent")
    scheduler_absent_grace_seconds: float = Field(
        30.0, ge=0, description="how long requests wait for a phase whose last worker vanished before they get 503"
    )


class WorkerSettings(ModelSettings, RoleSettings):
    """A prefill or a decode worker."""

    phase: Phase
    advertise_url: Url = Field(description="base URL at which gateways reach this worker")
    scheduler_urls: Urls
    kv_url: Url = Field(description="base URL of the kv service")
    heartbeat_seconds: float = Field(0.5, gt=0)
    dtype: Dtype = "float32"
    threads: int = Field(1, ge=1, description="threads of the engine's matrix work")
    native_folder: Path | None = Field(None, description="where compiled code is kept; without it none is compiled")

    prefill_max_batch_tokens: int = Field(2048, ge=64, description="tokens that one engine step computes at most")
    decode_max_tokens: int = Field(2048, ge=1, description="most tokens one request may generate")
    decode_idle_wait_ms: float = Field(
        20.0, ge=0, description="longest sleep of an idle engine loop before it looks after deadlines again"
    )
    worker_max_running: int = Field(32, ge=1, description="sequences in one batch")
    worker_max_waiting: int = Field(64, ge=0, description="requests admitted but not running; more get 429")

    kv_transport: Transport = Field("shm", description="how decode pulls KV from prefill")
    kv_transfer_host: str = Field("127.0.0.1", description="address of the TCP transfer server, as decode reaches it")
    kv_transfer_port: int = Field(0, ge=0, le=65535, description="its port; 0 takes a free one")
    kv_socket: Path = Field(description="Unix socket of the shared-memory transfer server")
    kv_block_size: int = Field(64, ge=1, description="tokens in a KV block")
    kv_pool_mib: int = Field(1024, ge=1, description="size of the preallocated KV pool")
    kv_lease_seconds: float = Field(30.0, gt=0, description="a lease's life unless renewed")
    kv_ttl_seconds: float = Field(300.0, gt=0, description="upper bound of a lease's life, renewals included")
    kv_transfer_timeout_seconds: float = Field(20.0, gt=0, description="deadline of one transfer, from its start")

    def faults(self) -> Iterator[str]:
        """What is wrong between settings."""
        yield from super().faults()
        yield from self._without_tls(advertise_url=self.advertise_url, kv_url=self.kv_url)
        for url in self.scheduler_urls:
            yield from self._without_tls(scheduler_urls=url)
        reached = {"ADVERTISE_URL": urlsplit(self.advertise_url).hostname}
        if self.kv_transport == "tcp":
            reached["KV_TRANSFER_HOST"] = self.kv_transfer_host
            for name, port in (("PORT", self.port), ("PROBE_PORT", self.probe_port)):
                if self.kv_transfer_port == port:
                    yield f"KV_TRANSFER_PORT: {port} is also {name}: transfers need a port of their own"
        for name, host in reached.items():
            if host in NOWHERE:
                yield f"{name}: nobody reaches {host}: name this host's own address, such as the pod's"


class KvSettings(RoleSettings):
    """The kv service: the directory of handles."""

    kv_ttl_seconds: float = Field(300.0, gt=0, description="how long a handle is kept unless released")
    kv_max_handles: int = Field(100_000, ge=1)
