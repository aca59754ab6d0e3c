"""The settings of each role in a pod. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.config import StackConfig
from infra.config.pods import WorkerPod, cores
from infra.kubernetes.names import (
    CACHE,
    EDGE_TLS,
    GATEWAY_PORT,
    KEYS,
    MODEL,
    PROBE_PORT,
    ROLE_PORT,
    TLS,
    TRANSFER_PORT,
    Names,
    Role,
)
from services.common.settings import GatewaySettings, KvSettings, Phase, RoleSettings, SchedulerSettings, WorkerSettings

# Kubernetes puts these in where a container starts.
POD_NAME, POD_IP = "$(POD_NAME)", "$(POD_IP)"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - of the pod's own network; policies say who reaches it
FETCHED = "current"  # where an init container leaves the model, below /model


@dataclass(frozen=True)
class Settings:
    """Settings of every role of a stack."""

    config: StackConfig
    names: Names

    def of(self, role: Role) -> RoleSettings:
        """The settings of a role's pods; where they hold $(POD_NAME) or $(POD_IP), each pod has its own."""
        if role == "gateway":
            return self._gateway()
        if role == "scheduler":
            return SchedulerSettings(scheduler_max_queue=self.config.scheduler.max_queue, **self._common(ROLE_PORT))
        if role == "kv":
            return KvSettings(kv_ttl_seconds=self.config.kv.ttl_seconds, **self._common(ROLE_PORT))
        return self._worker("prefill" if role == "prefill-worker" else "decode")

    def _gateway(self) -> GatewaySettings:
        gateway = self.config.gateway
        return GatewaySettings(
            scheduler_urls=self._scheduler_urls,
            gateway_tls_folder=EDGE_TLS,
            gateway_api_keys_file=KEYS / "api_keys.json",
            decode_max_tokens=self.config.decode.max_tokens,
            gateway_max_body_bytes=gateway.max_body_bytes,
            gateway_max_inflight=gateway.max_inflight,
            gateway_request_timeout_seconds=gateway.request_timeout_seconds,
            **self._model(),
            **self._common(GATEWAY_PORT),
        )

    def _worker(self, phase: Phase) -> WorkerSettings:
        engine, kv = self.config.engine, self.config.kv
        pod = self.config.kubernetes.prefill if phase == "prefill" else self.config.kubernetes.decode
        return WorkerSettings(
            phase=phase,
            advertise_url=f"https://{POD_IP}:{ROLE_PORT}",
            scheduler_urls=self._scheduler_urls,
            kv_url=f"https://{self.names.host('kv')}:{ROLE_PORT}",
            dtype=self.config.model.dtype,
            threads=engine.threads or _threads(pod),
            native_folder=CACHE / "native",
            worker_max_running=engine.max_running,
            worker_max_waiting=engine.max_waiting,
            kv_transport=kv.transport or "tcp",
            kv_transfer_host=POD_IP,
            kv_transfer_port=TRANSFER_PORT,
            kv_socket=CACHE / "kv.sock",
            kv_block_size=kv.block_size,
            kv_pool_mib=kv.pool_mib,
            kv_lease_seconds=kv.lease_seconds,
            kv_ttl_seconds=kv.ttl_seconds,
            **self._phase_only(phase),
            **self._model(),
            **self._common(ROLE_PORT),
        )

    @property
    def _scheduler_urls(self) -> tuple[str, ...]:
        return (f"dns+https://{self.names.host('scheduler')}:{ROLE_PORT}",)

    def _phase_only(self, phase: Phase) -> dict[str, Any]:
        # Only what a phase uses: a change of a parameter rolls no pod that does not read it.
        if phase == "prefill":
            return {"prefill_max_batch_tokens": self.config.prefill.max_batch_tokens}
        decode = self.config.decode
        return {"decode_max_tokens": decode.max_tokens, "decode_idle_wait_ms": decode.idle_wait_ms}

    def _model(self) -> dict[str, Any]:
        model = self.config.model
        return {
            "model_path": model_path(self.config),
            "model_name": model.name,
            "model_revision": model.revision,
            "max_model_len": model.max_length,
        }

    def _common(self, port: int) -> dict[str, Any]:
        kubernetes = self.config.kubernetes
        return {
            "instance": POD_NAME,
            "host": EVERYWHERE,
            "port": port,
            "probe_port": PROBE_PORT,
            "tls_folder": TLS,
            "log_level": kubernetes.log_level,
            "drain_seconds": kubernetes.drain_seconds,
        }


def model_path(config: StackConfig) -> Path:
    """The model's folder in a pod."""
    return MODEL / FETCHED if config.kubernetes.model_volume.fetch else MODEL


def _threads(pod: WorkerPod) -> int:
    return max(1, int(cores(pod.cpu)))
