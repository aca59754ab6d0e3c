"""The life of a request: place, prefill, place, decode; and again, elsewhere, for what failed.

Everything that is held (a slot at a worker, a lease on KV, a connection) is given back on every path: the generator's
`finally` starts the releases, which run in the background because a cancelled request cannot wait for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from services.common import logs
from services.common.errors import (
    DiphaseError,
    Draining,
    Incompatible,
    InvalidRequest,
    KvUnavailable,
    Saturated,
    UpstreamFailed,
)
from services.common.wire import CompletionResponse, KvTransferParams, Phase, Placement
from services.gateway import metrics
from services.gateway.background import Background
from services.gateway.job import Job
from services.gateway.lease import Lease
from services.gateway.retries import Retries
from services.gateway.schedulers import Schedulers
from services.gateway.slot import Slot
from services.gateway.upstream import Step, Workers

_ASK_PREFILL = KvTransferParams(do_remote_decode=True)
_log = logs.get()


class _Again(Exception):
    """Prefill has to run again."""


class Life:
    """One request on its way. `steps` is iterated once; the figures may be read at any time."""

    def __init__(self, job: Job, schedulers: Schedulers, workers: Workers, background: Background) -> None:
        self._job = job
        self._schedulers, self._workers, self._background = schedulers, workers, background
        self._retries = Retries(job)
        self._kv_losses = 0
        self.output: list[int] = []
        self.cached_tokens = 0  # of the prompt, as the first prefill found it
        self.legs = 0

    @property
    def retries(self) -> int:
        """Legs that had to be tried again."""
        return self._retries.total

    async def steps(self) -> AsyncGenerator[Step]:
        """The answer's tokens as they come; the last step has the finish reason.

        No token comes twice and none is left out, whatever fails in between. Raises InvalidRequest where a worker
        refuses the request, Saturated and Absent where nothing was answered yet, DeadlineExceeded.
        """
        while True:
            try:
                async with aclosing(self._attempt()) as attempt:
                    async for step in attempt:
                        yield step
                return
            except _Again as again:
                metrics.resubmissions.labels(str(again)).inc()
                _log.warning("resubmitted", request_id=self._job.request_id, reason=str(again), tokens=len(self.output))

    async def _attempt(self) -> AsyncGenerator[Step]:
        """Prefill and decode; raises _Again where decode cannot go on from this prefill."""
        prefill, answer = await self._prefill()
        handle = answer.kv_transfer_params
        lease = None if handle is None else Lease(handle, self._workers, self._background)
        try:
            choice = answer.choices[0]
            step = Step(choice.token_ids, choice.logprobs)
            if choice.finish_reason == "stop":
                step.finish_reason = "stop"
            elif len(self.output) + len(step.token_ids) >= self._job.max_tokens:
                step.finish_reason = "length"
            if step.finish_reason is not None or prefill.hands_over_first_token:
                self.output += step.token_ids
                if step.finish_reason is not None and lease is not None:
                    lease.release()
                yield step
            if step.finish_reason is None:
                async with aclosing(self._decode(prefill, lease)) as rest:
                    async for step in rest:
                        yield step
        finally:
            if lease is not None:
                lease.release()

    async def _prefill(self) -> tuple[Placement, CompletionResponse]:
        """Compute the prompt and what is answered already, somewhere; returns who did it and its answer."""
        while True:
            leg_id = self._next_leg_id()
            with self._slot(leg_id, "prefill") as slot:
                placement = await slot.take(len(self.output))
                left = self._retries.remaining()
                body = self._job.leg(self.output, 1, left, _ASK_PREFILL, stream=False)
                try:
                    answer = await self._workers.complete(placement.url, body, self._headers(leg_id), left)
                    choice = answer.choices[0]
                    if choice.finish_reason == "abort" or not (choice.token_ids or choice.finish_reason == "stop"):
                        raise UpstreamFailed(f"{placement.url} gave the request up")
                except DiphaseError as error:
                    if not isinstance(error, Saturated | Draining | InvalidRequest):  # refused: nothing is kept there
                        self._release_unknown(placement, leg_id)
                    slot.release()
                    await self._retries.after(error, placement, "prefill")
                    continue
                except asyncio.CancelledError:
                    self._release_unknown(placement, leg_id)
                    raise
            if not self.output and answer.usage is not None and answer.usage.prompt_tokens_details is not None:
                self.cached_tokens = answer.usage.prompt_tokens_details.cached_tokens
            return placement, answer

    def _release_unknown(self, placement: Placement, leg_id: str) -> None:
        """Release what a worker may keep for a leg whose answer never came."""
        self._background.spawn(self._workers.release(placement.url, leg_id, None), "release of KV")

    async def _decode(self, prefill: Placement, lease: Lease | None) -> AsyncGenerator[Step]:
        """Write the rest, trying other workers as long as the KV is there; then raises _Again."""
        begun = done = False
        kv = None if lease is None else _asked_of_decode(lease.handle)
        while True:
            leg_id = self._next_leg_id()
            with self._slot(leg_id, "decode") as slot:
                try:
                    placement = await slot.take(len(self.output), prefill.revision, prefill.layout)
                except Incompatible as error:  # a rollout has taken the decode workers that could read this KV
                    await self._retries.pair_gone(error)
                    raise _Again("pair_gone") from None
                left = self._retries.remaining()
                body = self._job.leg(self.output, self._job.max_tokens - len(self.output), left, kv, stream=True)
                try:
                    async with self._workers.stream(placement.url, body, self._headers(leg_id), left) as steps:
                        async for step in steps:
                            if step.finish_reason == "abort":
                                raise UpstreamFailed(f"{placement.url} gave the request up")
                            if not begun and lease is not None:
                                lease.release()
                            begun = True
                            self.output += step.token_ids
                            done = done or step.finish_reason is not None
                            yield step
                    if not done:
                        raise UpstreamFailed(f"{placement.url} ended its answer without a reason")
                    return
                except DiphaseError as error:
                    if done:
                        return  # the answer is whole; only the end of the connection went wrong
                    slot.release()
                    await self._retries.after(error, placement, "decode")
                    if isinstance(error, KvUnavailable):
                        self._lost_kv(prefill)
                        raise _Again("kv_unavailable") from None
                    if begun:
                        raise _Again("decode_failed") from None

    def _lost_kv(self, prefill: Placement) -> None:
        """Once it may have expired; from the second time on the way between the two is suspect, so try another."""
        self._kv_losses += 1
        if self._kv_losses > 1:
            self._retries.exclude(prefill.engine_id)

    def _next_leg_id(self) -> str:
        """The same id on both legs, as vLLM expects; with a number once a leg failed, so that the release of an
        old leg, which may come late, cannot hit a new one.
        """
        self.legs += 1
        number = self._retries.total
        return f"{self._job.internal_id}-{number}" if number else self._job.internal_id

    def _slot(self, leg_id: str, phase: Phase) -> Slot:
        return Slot(self._schedulers, self._background, self._job, self._retries, leg_id, phase)

    def _headers(self, leg_id: str) -> list[tuple[str, str]]:
        return [("X-Request-Id", leg_id), ("traceparent", self._job.traceparent)]


def _asked_of_decode(handle: KvTransferParams) -> KvTransferParams:
    """The handle, turned round."""
    return msgspec.structs.replace(handle, do_remote_decode=False, do_remote_prefill=True)
