"""The roles of a local stack: each instance's port, settings and command. Pure."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.config import StackConfig
from infra.paths import StackPaths
from infra.process import package_of
from services.common.settings import GatewaySettings, KvSettings, Phase, RoleSettings, SchedulerSettings, WorkerSettings

# Distance of each role's first port from local.basePort; infra.config.local bounds the number of replicas accordingly.
SCHEDULER, KV, PREFILL, DECODE = 1, 10, 20, 40
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class PreparedModel:
    """The model as the roles load it."""

    path: Path
    name: str
    revision: str


@dataclass(frozen=True)
class Layout:
    """Names, addresses and settings of every instance of a stack."""

    config: StackConfig
    paths: StackPaths

    @property
    def gateway_port(self) -> int:
        return self.config.gateway.port or self.config.local.base_port

    @property
    def scheduler_urls(self) -> tuple[str, ...]:
        return tuple(f"http://{LOOPBACK}:{self.port(SCHEDULER, i)}" for i in range(self.config.scheduler.replicas))

    def port(self, offset: int, index: int) -> int:
        """The port of a role's instance `index`."""
        return self.config.local.base_port + offset + index

    def kv(self) -> KvSettings:
        return KvSettings(
            instance="kv-0", port=self.port(KV, 0), kv_ttl_seconds=self.config.kv.ttl_seconds, **self._common()
        )

    def scheduler(self, index: int) -> SchedulerSettings:
        return SchedulerSettings(
            instance=f"scheduler-{index}",
            port=self.port(SCHEDULER, index),
            scheduler_max_queue=self.config.scheduler.max_queue,
            **self._common(),
        )

    def worker(self, phase: Phase, index: int, model: PreparedModel) -> WorkerSettings:
        config = self.config
        instance = f"{phase}-worker-{index}"
        port = self.port(PREFILL if phase == "prefill" else DECODE, index)
        return WorkerSettings(
            instance=instance,
            port=port,
            phase=phase,
            advertise_url=f"http://{LOOPBACK}:{port}",
            scheduler_urls=self.scheduler_urls,
            kv_url=f"http://{LOOPBACK}:{self.port(KV, 0)}",
            dtype=config.model.dtype,
            threads=config.engine.threads or max(1, (os.cpu_count() or 1) // 2),
            native_folder=self.paths.native,
            worker_max_running=config.engine.max_running,
            worker_max_waiting=config.engine.max_waiting,
            kv_transport=config.kv.transport or "shm",
            kv_socket=self.paths.socket(instance),
            kv_block_size=config.kv.block_size,
            kv_pool_mib=config.kv.pool_mib,
            kv_lease_seconds=config.kv.lease_seconds,
            kv_ttl_seconds=config.kv.ttl_seconds,
            **self._phase_only(phase),
            **self._model(model),
            **self._common(),
        )

    def gateway(self, model: PreparedModel) -> GatewaySettings:
        gateway = self.config.gateway
        return GatewaySettings(
            instance="gateway-0",
            port=self.gateway_port,
            scheduler_urls=self.scheduler_urls,
            gateway_api_keys_file=self.paths.api_keys,
            decode_max_tokens=self.config.decode.max_tokens,
            gateway_max_body_bytes=gateway.max_body_bytes,
            gateway_max_inflight=gateway.max_inflight,
            gateway_request_timeout_seconds=gateway.request_timeout_seconds,
            **self._model(model),
            **{**self._common(), "host": gateway.host},
        )

    def _phase_only(self, phase: Phase) -> dict[str, Any]:
        # Only what a phase uses: a change of a parameter restarts no role that does not read it.
        if phase == "prefill":
            return {"prefill_max_batch_tokens": self.config.prefill.max_batch_tokens}
        decode = self.config.decode
        return {"decode_max_tokens": decode.max_tokens, "decode_idle_wait_ms": decode.idle_wait_ms}

    def _model(self, model: PreparedModel) -> dict[str, Any]:
        return {
            "model_path": model.path,
            "model_name": self.config.model.name or model.name,
            "model_revision": model.revision,
            "max_model_len": self.config.model.max_length,
        }

    def _common(self) -> dict[str, Any]:
        local = self.config.local
        return {
            "host": LOOPBACK,
            "log_level": local.log_level,
            "drain_seconds": local.drain_seconds,
            "exit_with_parent": True,
        }


def command_of(settings: RoleSettings) -> list[str]:
    """What starts a role, with the interpreter of this environment."""
    # Not sys.executable: its spelling depends on how the program was started, and a change would restart the role.
    return [f"{sys.prefix}/bin/python", "-m", f"services.{package_of(settings)}"]
