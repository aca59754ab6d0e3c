"""What says how many pods a role needs: a Prometheus query for each, and how much of it one pod takes. Pure.

Sums over all pods of a role, wherever they can be: a sum is the whole load, which the birth or death of a pod does not
change, and divided by what one pod takes it is the number of pods that are needed, however many there are. So it also
says what one pod less would have to bear. Only latencies are ratios: those of a scaled role to its objective.

A query without an answer is no load of zero: nothing is scaled down then. So none of them falls back on a number unless
the pods are known to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from infra.config import StackConfig
from infra.config.autoscaling import (
    Autoscaling,
    DecodeScaling,
    GatewayScaling,
    PrefillScaling,
    Scaled,
    SchedulerScaling,
)
from infra.kubernetes.names import Role

DEPLOYMENTS: dict[Scaled, Role] = {
    "gateway": "gateway",
    "scheduler": "scheduler",
    "prefill": "prefill-worker",
    "decode": "decode-worker",
}
# Of so many answers in ten a latency must be within its objective.
QUANTILE = 0.9
# A latency far beyond its objective asks for so many times the pods at once, and not for more: it lags behind.
MOST_AT_ONCE = 2
# Of engine.maxRunning; a full batch has no room for those that come while another worker starts.
FULL = 0.8
STEP_SECONDS = 5


@dataclass(frozen=True)
class Signal:
    """A query, and what it is to be: for each pod (AverageValue), or as it is (Value)."""

    name: str
    query: str
    target: float
    type: Literal["AverageValue", "Value"] = "AverageValue"


def signals(config: StackConfig, namespace: str, role: Scaled) -> list[Signal]:
    """The signals of a role that is scaled; whichever asks for most pods is followed."""
    queries, scaling = Queries(config.autoscaling, namespace), config.autoscaling.scaled[role]
    if isinstance(scaling, PrefillScaling):
        return list(_prefill(queries, scaling, config))
    if isinstance(scaling, DecodeScaling):
        return list(_decode(queries, scaling, config))
    if isinstance(scaling, GatewayScaling):
        inflight = queries.mean(queries.sum("gateway", "diphase_gateway_inflight_requests"))
        return [Signal("requests", inflight, scaling.requests)]
    assert isinstance(scaling, SchedulerScaling)
    placed = queries.rate("scheduler", "diphase_scheduler_placements_total")
    return [Signal("requests_per_second", placed, scaling.requests_per_second)]


def cpu_percent(config: StackConfig, role: Scaled) -> int | None:
    """The CPU that a role's pods are to use, of what is kept for them."""
    scaling = config.autoscaling.scaled[role]
    return scaling.cpu_percent if isinstance(scaling, GatewayScaling | SchedulerScaling) else None


def _prefill(queries: Queries, scaling: PrefillScaling, config: StackConfig) -> Iterator[Signal]:
    waiting = queries.sum("prefill", "diphase_queued_prompt_tokens")
    unplaced = queries.sum("scheduler", "diphase_scheduler_queued_tokens", phase="prefill")
    yield Signal("queued_tokens", queries.mean(f"{waiting} + {unplaced}"), scaling.queued_tokens)
    # What waits is gone as soon as there are pods enough: this alone says how many are enough.
    yield Signal("busy", queries.rate("prefill", "diphase_engine_busy_seconds_total"), scaling.busy)
    ttft = scaling.ttft_seconds or config.objectives.ttft_seconds
    yield queries.latency("ttft", "gen_ai_server_time_to_first_token_seconds", ttft)


def _decode(queries: Queries, scaling: DecodeScaling, config: StackConfig) -> Iterator[Signal]:
    yield Signal("kv_usage", queries.mean(queries.sum("decode", "vllm:kv_cache_usage_perc")), scaling.kv_usage)
    running = queries.sum("decode", "vllm:num_requests_running")
    waiting = queries.sum("decode", "vllm:num_requests_waiting")
    unplaced = queries.sum("scheduler", "diphase_scheduler_queue_length", phase="decode")
    requests = scaling.requests or FULL * config.engine.max_running
    yield Signal("requests", queries.mean(f"{running} + {waiting} + {unplaced}"), requests)
    rate = config.objectives.decode_tokens_per_second
    tpot = scaling.tpot_seconds or (1 / rate if rate else None)
    if tpot is not None:
        yield queries.latency("tpot", "gen_ai_server_time_per_output_token_seconds", tpot)


@dataclass(frozen=True)
class Queries:
    """PromQL about the pods of one stack, by the labels that every scrape configuration sets: namespace and pod."""

    autoscaling: Autoscaling
    namespace: str

    def pods(self, role: Scaled, **labels: str) -> str:
        """A selector; a Deployment's pods are called after it."""
        own = "".join(f',{name}="{value}"' for name, value in labels.items())
        return f'{{namespace="{self.namespace}",pod=~"{DEPLOYMENTS[role]}-.+"{own}}}'

    def sum(self, role: Scaled, metric: str, **labels: str) -> str:
        return f"sum({metric}{self.pods(role, **labels)})"

    def mean(self, query: str) -> str:
        """The mean over the window of what was the sum at each moment, so that no pod counts after its end."""
        return f"avg_over_time(({query})[{self._window}:{STEP_SECONDS}s])"

    def rate(self, role: Scaled, counter: str) -> str:
        """A counter's growth in a second, over the window."""
        return f"sum(rate({counter}{self.pods(role)}[{self._window}]))"

    def latency(self, name: str, histogram: str, objective: float) -> Signal:
        """What nine in ten clients saw; zero where there was none."""
        buckets = f"sum by (le) (rate({histogram}_bucket{self.pods('gateway')}[{self._window}]))"
        seen = f"clamp_max(histogram_quantile({QUANTILE}, {buckets}) >= 0, {MOST_AT_ONCE * objective:g})"
        read = self.sum("gateway", "diphase_gateway_inflight_requests")
        return Signal(name, f"{seen} or 0 * {read}", objective, "Value")

    @property
    def _window(self) -> str:
        return f"{self.autoscaling.window_seconds}s"
