"""Why a request can have no worker, or need not wait for one: saturated, absent, and impossible are told apart."""

from __future__ import annotations

from collections.abc import Iterable

from services.common.errors import (
    Absent,
    ContextTooLong,
    DeadlineExceeded,
    Draining,
    Incompatible,
    InvalidRequest,
    ModelNotFound,
)
from services.common.wire import Phase, PlaceRequest
from services.scheduler.load import Worker
from services.scheduler.registry import Registry


def same_pair(request: PlaceRequest, worker: Worker) -> bool:
    """Whether the worker is of the revision and layout that the request asks for, if it does."""
    revision, layout = worker.pair
    return request.revision in (None, revision) and request.layout in (None, layout)


def needs_partner(request: PlaceRequest) -> bool:
    """Whether a decode worker must be able to take over; a request for one token ends in prefill."""
    return request.phase == "prefill" and request.max_tokens > 1


def closing() -> Draining:
    """This replica stops."""
    return Draining("this scheduler replica is shutting down: ask another one", retry_after=1.0)


def malformed(request: PlaceRequest) -> InvalidRequest | None:
    """What the request may not say."""
    if request.request_id and request.prompt_tokens >= 1 and request.max_tokens >= 0:
        return None
    return InvalidRequest("request_id must not be empty, prompt_tokens be at least 1 and max_tokens at least 0")


def used_again(request: PlaceRequest) -> InvalidRequest:
    """What the first of two requests with one id gets."""
    return InvalidRequest(f"request id {request.request_id} was used again: each request needs its own")


def too_late(request: PlaceRequest) -> DeadlineExceeded:
    """The deadline has passed."""
    return DeadlineExceeded(
        f"no {request.phase} worker had room within {request.timeout:.1f} s: the service is overloaded, try again later"
    )


def too_long(registry: Registry, request: PlaceRequest) -> ContextTooLong | None:
    """An error if no worker could hold the request even if it were empty.

    A request for prefill is also held against the decode workers, so that the client learns it before its first token.
    """
    phases: tuple[Phase, ...] = ("prefill", "decode") if needs_partner(request) else (request.phase,)
    for phase in phases:
        workers = (w for w in registry.role(phase, request.model).values() if same_pair(request, w))
        if not _any_holds(workers, request):
            return ContextTooLong(
                f"{request.prompt_tokens} tokens of prompt and {request.max_tokens} of answer are more than any "
                f"{phase} worker can hold: shorten the prompt or lower max_tokens"
            )
    return None


def superseded(registry: Registry, request: PlaceRequest, now: float) -> Incompatible | None:
    """An error if the decode workers that could read the request's KV have gone, and another pair serves: then it is
    better computed anew than waited for. One that fell silent is waited for as long as it may come back.
    """
    if request.phase != "decode" or request.revision is None:
        return None
    known = registry.role("decode", request.model).values()
    if any(same_pair(request, worker) and registry.expected(worker, now) for worker in known):
        return None
    others = sorted(registry.pairs(request.model, now))
    if not others:
        return None
    serving = ", ".join(f"revision {revision}, layout {layout}" for revision, layout in others)
    return Incompatible(
        f"no decode worker of revision {request.revision}, layout {request.layout} is left, only of {serving}: "
        "prefill again"
    )


def _any_holds(workers: Iterable[Worker], request: PlaceRequest) -> bool:
    """Also true if there are none, of which nothing is known."""
    worker = None
    for worker in workers:
        if worker.could_hold(request):
            return True
    return worker is None


def absence(registry: Registry, request: PlaceRequest, now: float) -> ModelNotFound | Absent | None:
    """An error if nobody serves such requests and nobody did within the grace."""
    if registry.models and request.model not in registry.models:
        return ModelNotFound(f"no worker serves model {request.model!r}: there is {', '.join(sorted(registry.models))}")
    known = registry.role(request.phase, request.model).values()
    hoped_for = [worker for worker in known if same_pair(request, worker) and registry.hoped_for(worker, now)]
    if not hoped_for:
        pair = "" if request.revision is None else f", revision {request.revision}, layout {request.layout}"
        return Absent(f"no healthy {request.phase} worker of model {request.model}{pair}: see /v1/workers, try later")
    if needs_partner(request):
        shares = registry.shares(request.model, now)
        if not any(worker.pair in shares for worker in hoped_for):
            return Absent(
                f"no healthy decode worker of model {request.model} could take over from prefill: "
                "see /v1/workers, try later"
            )
    return None
