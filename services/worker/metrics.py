"""What a worker counts. Names that vLLM has are vLLM's, whatever the engine; the rest is `diphase_*`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from services.common.metrics import REGISTRY, SECONDS
from services.common.wire import Load
from services.kv.keeper import LeaseCounts

_LABEL = ["model_name"]

prompt_tokens = Counter("vllm:prompt_tokens", "Prompt tokens computed or fetched", _LABEL, registry=REGISTRY)
generation_tokens = Counter("vllm:generation_tokens", "Tokens generated", _LABEL, registry=REGISTRY)
requests_ended = Counter(
    "vllm:request_success", "Requests that ended, by reason", [*_LABEL, "finished_reason"], registry=REGISTRY
)
time_to_first_token = Histogram(
    "vllm:time_to_first_token_seconds",
    "From the arrival at this worker to its first token",
    _LABEL,
    buckets=SECONDS,
    registry=REGISTRY,
)
time_per_output_token = Histogram(
    "vllm:time_per_output_token_seconds",
    "Mean gap between the tokens of one answer at this worker",
    _LABEL,
    buckets=SECONDS,
    registry=REGISTRY,
)
kv_transfers = Counter(
    "diphase_kv_transfers", "KV transfers that this worker pulled", ["transport", "outcome"], registry=REGISTRY
)
kv_transfer_bytes = Counter(
    "diphase_kv_transfer_bytes",
    "KV bytes that this worker pulled or served",
    ["direction", "transport"],
    registry=REGISTRY,
)
kv_transfer_seconds = Histogram(
    "diphase_kv_transfer_seconds",
    "Time to pull the KV of one request",
    ["transport"],
    buckets=SECONDS,
    registry=REGISTRY,
)
local_prefills = Counter(
    "diphase_local_prefill", "Prompts that this worker computed and also decodes: no KV moved", registry=REGISTRY
)
directory_failures = Counter(
    "diphase_kv_directory_failures",
    "Calls to the kv service that failed; no request depends on them",
    registry=REGISTRY,
)


def watch_load(model_name: str, num_blocks: int, load: Callable[[], Load]) -> None:
    """Read the gauges from the engine when they are scraped."""

    def gauge(name: str, text: str, value: Callable[[Load], float]) -> None:
        Gauge(name, text, _LABEL, registry=REGISTRY).labels(model_name).set_function(lambda: value(load()))

    gauge("vllm:num_requests_running", "Requests in the batch", lambda now: now.running)
    gauge("vllm:num_requests_waiting", "Requests admitted but not in the batch", lambda now: now.waiting)
    gauge(
        "vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1", lambda now: 1 - now.kv_blocks_free / num_blocks
    )
    gauge("diphase_kv_blocks_free", "Free KV blocks", lambda now: now.kv_blocks_free)
    gauge("diphase_kv_blocks", "KV blocks in the pool", lambda _now: num_blocks)
    gauge("diphase_queued_prompt_tokens", "Prompt tokens waiting to be computed", lambda now: now.queued_tokens)


class _Busy(Collector):
    """The time that the engine counts itself, read when it is scraped."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("diphase_engine_busy_seconds", "Time that the engine computed", self._seconds())


def watch_busy(seconds: Callable[[], float]) -> None:
    """Expose the time that the engine has computed."""
    REGISTRY.register(_Busy(seconds))


class _Leases(Collector):
    """The lease keeper's own counts, read when they are scraped."""

    def __init__(self, counts: Callable[[], LeaseCounts]) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        now = self._counts()
        yield GaugeMetricFamily("diphase_kv_leases_open", "KV leases that may still be read", now.open)
        yield GaugeMetricFamily("diphase_kv_blocks_leased", "KV blocks that leases keep", now.blocks_held)
        family = CounterMetricFamily("diphase_kv_leases", "KV leases, by what became of them", labels=["outcome"])
        for outcome in ("granted", "released", "expired", "replaced", "refused"):
            family.add_metric([outcome], getattr(now, outcome))
        yield family


def watch_leases(counts: Callable[[], LeaseCounts]) -> None:
    """Expose what the lease keeper counts."""
    REGISTRY.register(_Leases(counts))
