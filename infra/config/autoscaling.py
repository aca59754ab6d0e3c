"""The group of autoscaling: how many pods of a role there are, by what it has to do."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from infra.config.group import Group

MOST = 1000
CRON = re.compile(r"[\d*/,-]+ [\d*/,-]+ [\d*/,?-]+ [\dA-Za-z*/,-]+ [\dA-Za-z*/,?-]+")


def _cron(text: str) -> str:
    if not CRON.fullmatch(text):
        raise ValueError(f"{text!r} is no time as cron has it: five fields, such as 0 22 * * 1-5")
    return text


Cron = Annotated[str, AfterValidator(_cron)]


class OffPeak(Group):
    """Hours in which fewer pods will do when there is nothing for them; `start` and `end` come in turn. Needs KEDA."""

    start: Cron = Field(description="when they begin, as cron has it: minute, hour, day of month, month, day of week")
    end: Cron = Field(description="when they end")
    timezone: str = Field("UTC", min_length=1, description="whose clock that is, such as Asia/Shanghai")
    min: int = Field(1, ge=1, le=MOST, description="pods at least, in these hours")

    @model_validator(mode="after")
    def _consistent(self) -> OffPeak:
        if self.start == self.end:
            raise ValueError(f"start and end are both {self.start!r}: off-peak hours must begin and end")
        known = zoneinfo.available_timezones()  # empty where the machine has no such data
        if known and self.timezone not in known:
            raise ValueError(f"timezone {self.timezone!r} is unknown; take one such as UTC or Asia/Shanghai")
        return self


class Pace(Group):
    """How fast pods are added and taken. What keeps numbers from swinging are the windows: more pods come when more
    were needed all the time of one, and pods go when fewer were enough all the time of the other."""

    up_pods: int = Field(2, ge=1, le=MOST, description="pods added at most in `stepSeconds`")
    down_pods: int = Field(1, ge=1, le=MOST, description="pods taken at most in `stepSeconds`")
    step_seconds: int = Field(60, ge=1, le=1800, description="no less than a pod takes until it is ready")
    up_window_seconds: int = Field(30, ge=0, le=3600, description="how long more pods must have been needed")
    down_window_seconds: int = Field(300, ge=0, le=3600, description="how long fewer pods must have been enough")


class Scaling(Group):
    """What the scaling of every role has; the load decides, within `min` and `max`."""

    min: int = Field(1, ge=1, le=MOST, description="pods at least")
    max: int = Field(ge=1, le=MOST, description="pods at most")
    pace: Pace = Field(Pace(), description="how fast it goes up and down")
    off_peak: OffPeak | None = Field(None, description="hours of a lower floor; always `min` when absent")

    @model_validator(mode="after")
    def _consistent(self) -> Scaling:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.min > self.max:
            yield f"min ({self.min}) must not exceed max ({self.max})"
        if self.off_peak and self.off_peak.min >= self.min:
            yield f"offPeak.min ({self.off_peak.min}) must be below min ({self.min}), or offPeak be left out"


class PrefillScaling(Scaling):
    """Prefill workers: as many as what waits, what is computed, and the time to the first token ask for."""

    queued_tokens: int = Field(4096, ge=1, description="prompt tokens that wait, for each worker")
    busy: float = Field(0.7, gt=0, le=1, description="share of its time that a worker computes")
    ttft_seconds: float | None = Field(
        None, gt=0, description="of nine answers in ten, as clients see it; objectives.ttftSeconds when absent"
    )


class DecodeScaling(Scaling):
    """Decode workers: as many as KV, running requests, and the time between tokens ask for."""

    kv_usage: float = Field(0.8, gt=0, le=1, description="share of a worker's KV blocks in use")
    requests: float | None = Field(
        None, gt=0, description="requests of a worker, those that wait for one included; 0.8 of engine.maxRunning"
    )
    tpot_seconds: float | None = Field(
        None, gt=0, description="of nine answers in ten; 1 / objectives.decodeTokensPerSecond when absent"
    )


class GatewayScaling(Scaling):
    """Gateways: as many as their CPU and the requests in flight ask for."""

    cpu_percent: int = Field(70, ge=1, le=1000, description="of the cores that are kept for a pod")
    requests: float = Field(256, gt=0, description="requests in flight, for each gateway")


class SchedulerScaling(Scaling):
    """Schedulers: as many as their CPU and the requests to place ask for."""

    min: int = Field(2, ge=2, le=9, description="pods at least")
    max: int = Field(ge=2, le=9, description="pods at most")
    cpu_percent: int = Field(70, ge=1, le=1000, description="of the cores that are kept for a pod")
    requests_per_second: float = Field(500, gt=0, description="requests to place, for each scheduler")


class Autoscaling(Group):
    """Who decides how many pods a role has. A role that is not named here has `replicas`, always."""

    kind: Literal["keda", "hpa"] = Field(
        "keda", description="KEDA's ScaledObjects, or HorizontalPodAutoscalers and rules for a metrics adapter"
    )
    prometheus_url: str | None = Field(
        None, pattern=r"^https?://[^\s/]+(/\S*)?$", description="the Prometheus that KEDA asks, as KEDA reaches it"
    )
    window_seconds: int = Field(
        60, ge=10, le=600, description="the span over which is measured; four scrapes of Prometheus at least"
    )
    prefill: PrefillScaling | None = Field(None, description="scaling of the prefill workers")
    decode: DecodeScaling | None = Field(None, description="scaling of the decode workers")
    gateway: GatewayScaling | None = Field(None, description="scaling of the gateway")
    scheduler: SchedulerScaling | None = Field(None, description="scaling of the scheduler")

    @property
    def scaled(self) -> dict[Scaled, Scaling]:
        """The roles that are scaled."""
        roles: dict[Scaled, Scaling | None] = {
            "gateway": self.gateway,
            "scheduler": self.scheduler,
            "prefill": self.prefill,
            "decode": self.decode,
        }
        return {role: scaling for role, scaling in roles.items() if scaling is not None}


Scaled = Literal["gateway", "scheduler", "prefill", "decode"]
