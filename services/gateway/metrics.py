"""The gateway's metrics: OpenTelemetry's gen_ai names where there is one, diphase_gateway_* for the rest."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from services.common.metrics import REGISTRY, SECONDS

_OF = ["gen_ai_operation_name", "gen_ai_request_model"]
_TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)

time_to_first_token = Histogram(
    "gen_ai_server_time_to_first_token_seconds",
    "From the request's last byte to its first token",
    _OF, buckets=SECONDS, registry=REGISTRY,
)  # fmt: skip
time_per_output_token = Histogram(
    "gen_ai_server_time_per_output_token_seconds",
    "Mean time between tokens after the first, one value for each answer",
    _OF, buckets=_TOKEN_SECONDS, registry=REGISTRY,
)  # fmt: skip
request_duration = Histogram(
    "gen_ai_server_request_duration_seconds",
    "From the request's last byte to the end of its answer",
    [*_OF, "error_type"], buckets=SECONDS, registry=REGISTRY,
)  # fmt: skip
token_usage = Histogram(
    "gen_ai_client_token_usage",
    "Tokens of a request: input or output",
    [*_OF, "gen_ai_token_type"], buckets=_TOKENS, registry=REGISTRY,
)  # fmt: skip

inflight = Gauge("diphase_gateway_inflight_requests", "Requests that are being answered", registry=REGISTRY)
failed_legs = Counter(
    "diphase_gateway_failed_legs", "Visits to workers that failed, and were or were not tried elsewhere",
    ["phase", "reason"], registry=REGISTRY,
)  # fmt: skip
resubmissions = Counter(
    "diphase_gateway_resubmissions", "Requests whose prefill was computed again, after KV existed or tokens were out",
    ["reason"], registry=REGISTRY,
)  # fmt: skip
scheduler_failovers = Counter(
    "diphase_gateway_scheduler_failovers", "Calls that the preferred scheduler did not answer", registry=REGISTRY
)
