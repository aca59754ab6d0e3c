"""How much a worker is to be avoided for a request: small pure functions, lowest wins; equal ones are drawn by lot."""

from __future__ import annotations

from collections.abc import Callable

from services.common.wire import Phase, PlaceRequest
from services.scheduler.load import View

Policy = Callable[[PlaceRequest, View], float]
POLICIES: dict[str, Policy] = {}


def policy(function: Policy) -> Policy:
    """Register a policy under its function's name."""
    POLICIES[function.__name__] = function
    return function


@policy
def fewest_queued_tokens(_request: PlaceRequest, view: View) -> float:
    """Prompt tokens that must be computed first, which is the wait in a compute-bound phase; then the fuller batch."""
    return view.queued_tokens + view.requests / (view.slots + 1)


@policy
def least_full(_request: PlaceRequest, view: View) -> float:
    """The share in use of what is scarcer here, places in the batch or KV blocks: decode slows with both."""
    return max(view.requests / view.slots, 1 - view.kv_blocks_free / view.kv_blocks)


DEFAULT: dict[Phase, str] = {"prefill": "fewest_queued_tokens", "decode": "least_full"}
