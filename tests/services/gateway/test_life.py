"""Whatever fails on the way, the client gets the same text, and nothing stays taken."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from services.common import errors
from services.common.metrics import REGISTRY
from services.gateway.retries import MAX_FAILURES
from tests.services.common.serving import until
from tests.services.gateway.conftest import start_scheduler, wait_ready
from tests.services.gateway.double import Double
from tests.services.gateway.world import KEY, TEXT, World, world

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}]}
Run = Callable[..., None]


@pytest.fixture
def run(tmp_path: Path, model_path: Path, scheduler_urls: list[str]) -> Run:
    """Run a test in a world, and see that it is at rest afterwards."""

    def start(test: Callable[[World], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            async with world(tmp_path, model_path, options.pop("schedulers", scheduler_urls), **options) as here:
                await test(here)
                await here.at_rest()

        asyncio.run(main())

    return start


def text_of(body: bytes) -> str:
    """A streamed chat's text."""
    assert body.endswith(b"data: [DONE]\n\n"), body[-200:]
    events = [json.loads(event[6:]) for event in body.split(b"\n\n") if event.startswith(b"data: {")]
    assert "error" not in events[-1], events[-1]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events)


def resubmitted(reason: str) -> float:
    return REGISTRY.get_sample_value("diphase_gateway_resubmissions_total", {"reason": reason}) or 0.0


@pytest.mark.parametrize("fault", ["cut:0", "cut:7", "error:7", "abort:7", "cut:36"])
def test_decode_dies_and_another_goes_on(run: Run, fault: str) -> None:
    async def test(here: World) -> None:
        for worker in here.decode:
            worker.faults.append(fault)
        before = resubmitted("decode_failed")
        reply = await here.post({**HELLO, "stream": True})
        assert text_of(reply.body) == TEXT
        assert sum(len(worker.visits) for worker in here.workers) >= 3
        assert (resubmitted("decode_failed") > before) == (fault != "cut:0")

    run(test, decode=2)


def test_the_only_decode_worker_restarts(run: Run) -> None:
    async def test(here: World) -> None:
        dying = here.decode[0]
        dying.pause = 0.01
        async with contextlib.AsyncExitStack() as held:
            request = asyncio.create_task(here.post({**HELLO, "stream": True}))
            await until(lambda: bool(dying.running) and dying.running[0].body.stream)
            await asyncio.sleep(0.1)
            dying.die()
            await asyncio.sleep(1.2)
            assert not request.done()
            reborn = Double("decode", here.answer, dying.schedulers, here.model, dying.worker_id)
            await held.enter_async_context(reborn.serve())
            assert text_of((await request).body) == TEXT
            assert reborn.visits[0].body.output_tokens > 0
            await here.at_rest()

    run(test)


@pytest.mark.parametrize("fault", ["saturated", "draining", "engine_failed", "cut"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_leg_fails_before_it_begins(run: Run, phase: str, fault: str) -> None:
    async def test(here: World) -> None:
        for worker in getattr(here, phase):
            worker.faults.append(fault)
        reply = await here.post(HELLO)
        assert reply.status == 200
        assert json.loads(reply.body)["choices"][0]["message"]["content"] == TEXT

    run(test, prefill=2, decode=2)


def test_a_lost_lease_means_prefill_again(run: Run) -> None:
    async def test(here: World) -> None:
        here.decode[0].faults += ["kv_unavailable", "kv_unavailable"]
        before = resubmitted("kv_unavailable")
        reply = await here.post(HELLO)
        answer = json.loads(reply.body)
        assert answer["choices"][0]["message"]["content"] == TEXT
        assert answer["usage"]["completion_tokens"] == len(here.answer)
        assert len(here.prefill[0].visits) == 3
        assert [visit.body.output_tokens for visit in here.prefill[0].visits] == [0, 1, 2]
        assert resubmitted("kv_unavailable") == before + 2

    run(test)


@pytest.mark.parametrize("streamed", [False, True])
def test_kv_that_never_arrives_is_not_computed_for_ever(
    run: Run, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    """The fallback is counted and capped, and then told: a broken way between the workers does not stay unseen."""
    monkeypatch.setattr("services.gateway.retries.LONGEST_PAUSE", 0.05)

    async def test(here: World) -> None:
        here.decode[0].faults += ["kv_unavailable"] * 20
        before = resubmitted("kv_unavailable")
        reply = await here.post({**HELLO, "stream": streamed})
        assert len(here.prefill[0].visits) == MAX_FAILURES
        assert resubmitted("kv_unavailable") == before + MAX_FAILURES - 1
        assert reply.status == (200 if streamed else 503)
        error = json.loads(reply.body.split(b"\n\n")[-2][6:] if streamed else reply.body)["error"]
        assert error["code"] == "no_healthy_worker"
        assert b"[DONE]" not in reply.body
        assert "http://" not in error["message"]

    run(test)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_what_a_worker_refuses_is_told_as_it_is(run: Run, phase: str) -> None:
    async def test(here: World) -> None:
        getattr(here, phase)[0].faults.append("refuse")
        reply = await here.post(HELLO)
        assert reply.status == 400
        assert "does not like it" in json.loads(reply.body)["error"]["message"]

    run(test)


def test_an_engine_that_keeps_its_first_token(run: Run) -> None:
    async def test(here: World) -> None:
        reply = await here.post({**HELLO, "stream": True})
        assert text_of(reply.body) == TEXT
        assert here.decode[0].visits[0].body.output_tokens == 0
        here.decode[0].faults.append("cut:5")
        assert text_of((await here.post({**HELLO, "stream": True})).body) == TEXT

    run(test, worker={"hands_over_first_token": False})


def test_one_token_needs_no_decode(run: Run) -> None:
    async def test(here: World) -> None:
        reply = await here.post({**HELLO, "max_tokens": 1})
        answer = json.loads(reply.body)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["completion_tokens"] == 1
        assert not here.decode[0].visits
        await until(lambda: here.prefill[0].releases == 1)

    run(test)


def test_an_answer_that_ends_with_its_first_token(run: Run) -> None:
    async def test(here: World) -> None:
        reply = await here.post(HELLO)
        assert json.loads(reply.body)["choices"][0]["finish_reason"] == "stop"
        assert not here.decode[0].visits

    run(test, text="Yes")


@pytest.mark.parametrize("streamed", [True, False])
def test_hanging_up_travels(run: Run, streamed: bool) -> None:
    async def test(here: World) -> None:
        here.decode[0].pause = 0.05
        request = asyncio.create_task(here.post({**HELLO, "stream": streamed}))
        await until(lambda: len(here.decode[0].running) == 1)
        await asyncio.sleep(0.2)
        gone_at = time.monotonic()
        request.cancel()
        visit = here.decode[0].visits[0]
        await until(lambda: visit.gone_at is not None)
        assert visit.gone_at is not None
        assert visit.gone_at - gone_at < 1.0

    run(test)


def test_hanging_up_during_prefill(run: Run) -> None:
    async def test(here: World) -> None:
        here.prefill[0].pause = 5.0
        request = asyncio.create_task(here.post({**HELLO, "stream": True}))
        await until(lambda: len(here.prefill[0].running) == 1)
        request.cancel()
        await until(lambda: here.prefill[0].visits[0].gone_at is not None, 2.0)
        await until(lambda: here.prefill[0].releases == 1, 2.0)

    run(test)


def test_hanging_up_while_waiting_for_decode(run: Run) -> None:
    """The lease is renewed while its request waits, and released when its client goes."""

    async def test(here: World) -> None:
        here.decode[0].pause = 0.1
        first = asyncio.create_task(here.post({**HELLO, "max_tokens": 20}))
        await until(lambda: len(here.decode[0].running) == 1)
        second = asyncio.create_task(here.post(HELLO))
        await until(lambda: len(here.prefill[0].visits) == 2)
        await until(lambda: here.prefill[0].renewals > 1)
        second.cancel()
        await until(lambda: not here.prefill[0].leases)
        assert (await first).status == 200

    run(test, worker={"max_running": 1})


def test_a_full_queue(run: Run) -> None:
    async def test(here: World) -> None:
        here.prefill[0].pause = 0.7
        waiting = [asyncio.create_task(here.post({**HELLO, "max_tokens": 1})) for _ in range(12)]
        replies = await asyncio.gather(*waiting)
        refused = [reply for reply in replies if reply.status == 429]
        assert refused
        assert all(json.loads(reply.body)["error"]["message"] == errors.BUSY for reply in refused)
        assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
        assert {reply.status for reply in replies} == {200, 429}

    run(test, worker={"max_running": 1})


def test_the_gateways_own_limit(run: Run) -> None:
    async def test(here: World) -> None:
        here.prefill[0].pause = 0.5
        replies = await asyncio.gather(*(here.post({**HELLO, "max_tokens": 1}) for _ in range(3)))
        assert sorted(reply.status for reply in replies) == [200, 200, 429]

    run(test, gateway_max_inflight=2)


def test_no_worker(run: Run) -> None:
    async def test(here: World) -> None:
        for streamed in (False, True):
            reply = await here.post({**HELLO, "stream": streamed})
            assert reply.status == 503
            assert "retry-after" in reply.headers
            assert "x-request-id" in reply.headers

    run(test, prefill=0, decode=0)


def test_the_deadline_before_the_first_token(run: Run) -> None:
    async def test(here: World) -> None:
        here.prefill[0].pause = 5.0
        for streamed in (False, True):
            reply = await here.post({**HELLO, "stream": streamed})
            assert reply.status == 504
            assert json.loads(reply.body)["error"]["code"] == "deadline_exceeded"

    run(test, gateway_request_timeout_seconds=0.5)


def test_the_deadline_in_a_stream(run: Run) -> None:
    async def test(here: World) -> None:
        here.decode[0].faults.append("stall:3")
        reply = await here.post({**HELLO, "stream": True})
        assert reply.status == 200
        assert b"[DONE]" not in reply.body
        assert b'"finish_reason":"' not in reply.body
        last = json.loads(reply.body.split(b"\n\n")[-2][6:])
        assert last["error"]["code"] == "deadline_exceeded"

    run(test, gateway_request_timeout_seconds=0.8)


def test_keepalive_before_the_first_token(run: Run) -> None:
    async def test(here: World) -> None:
        here.prefill[0].pause = 0.5
        reply = await here.post({**HELLO, "stream": True})
        assert reply.body.startswith(b": keepalive\n\n")
        assert text_of(reply.body) == TEXT

    run(test, gateway_keepalive_seconds=0.1)


def test_the_first_chunk_does_not_wait(run: Run) -> None:
    async def test(here: World) -> None:
        here.decode[0].pause = 0.2
        body = json.dumps({"model": here.model, **HELLO, "stream": True, "max_tokens": 5}).encode()
        url = f"{here.served.url}/v1/chat/completions"
        headers = [("Authorization", f"Bearer {KEY}")]
        async with here.http.stream("POST", url, body, headers=headers, timeout=10) as reply:
            first = await reply.__anext__()
            assert b'"role":"assistant"' in first
            assert b'"content":"G' in first
            assert len(here.decode[0].visits) == 0 or here.decode[0].running
            assert (first + await reply.read()).endswith(b"data: [DONE]\n\n")

    run(test)


def test_a_scheduler_is_killed(run: Run) -> None:
    started = [start_scheduler(f"killed-{i}") for i in range(2)]
    try:
        for _, url in started:
            wait_ready(url)

        async def test(here: World) -> None:
            here.decode[0].pause = 0.02
            running = [asyncio.create_task(here.post({**HELLO, "stream": True})) for _ in range(4)]
            await until(lambda: len(here.decode[0].running) == 4)
            preferred = here.gateway._schedulers.preferred
            for process, url in started:
                if url == preferred:
                    process.kill()
            replies = await asyncio.gather(*running, *(here.post({**HELLO, "stream": True}) for _ in range(4)))
            assert [text_of(reply.body) for reply in replies] == [TEXT] * 8
            for process, _ in started:
                process.kill()
            reply = await here.post(HELLO)
            assert reply.status == 503
            assert "no scheduler" in json.loads(reply.body)["error"]["message"]

        async def and_rest(here: World) -> None:
            await test(here)
            here.gateway.settings = here.gateway.settings.model_copy(update={"scheduler_urls": ()})

        run(and_rest, schedulers=[url for _, url in started])
    finally:
        for process, _ in started:
            process.kill()
            process.wait(10)


def test_a_scheduler_hangs(run: Run) -> None:
    """It takes connections and answers nothing: whoever waits for it goes to the other one."""
    started = [start_scheduler(f"hanging-{i}") for i in range(2)]
    try:
        for _, url in started:
            wait_ready(url)

        async def test(here: World) -> None:
            preferred = here.gateway._schedulers.preferred
            (hanging,) = (process for process, url in started if url == preferred)
            hanging.send_signal(signal.SIGSTOP)
            replies = await asyncio.gather(*(here.post({**HELLO, "stream": True}) for _ in range(4)))
            assert [text_of(reply.body) for reply in replies] == [TEXT] * 4
            assert here.gateway._schedulers.preferred != preferred
            hanging.send_signal(signal.SIGCONT)

        run(test, schedulers=[url for _, url in started])
    finally:
        for process, _ in started:
            process.kill()
            process.wait(10)


def test_one_id_sent_by_many(run: Run) -> None:
    """An id that a client chose is not trusted to be its own: neither request hurts the other."""

    async def test(here: World) -> None:
        here.decode[0].pause = 0.01
        replies = await asyncio.gather(*(here.post(HELLO, X_Request_Id="same") for _ in range(6)))
        assert [reply.status for reply in replies] == [200] * 6
        assert all(json.loads(reply.body)["choices"][0]["message"]["content"] == TEXT for reply in replies)

    run(test)


def test_ids_and_trace_on_both_legs(run: Run) -> None:
    async def test(here: World) -> None:
        trace = f"00-{'a' * 32}-{'b' * 16}-01"
        reply = await here.post(HELLO, X_Request_Id="mine-1", traceparent=trace)
        assert reply.headers["x-request-id"] == "mine-1"
        assert json.loads(reply.body)["id"] == "chatcmpl-mine-1"
        visits = [*here.prefill[0].visits, *here.decode[0].visits]
        assert [(visit.request_id, visit.traceparent) for visit in visits] == [("mine-1", trace)] * 2
        assert visits[0].body.seed == visits[1].body.seed is not None
        other = await here.post({**HELLO, "seed": -5})
        assert other.headers["x-request-id"].startswith("req-")
        assert here.decode[0].visits[-1].body.seed == -5
        assert here.decode[0].visits[-1].traceparent not in (None, trace)

    run(test)


def only_equal_pairs(here: World) -> None:
    """Every decode worker was given KV of its own revision."""
    revisions = {worker.engine_id: worker.revision for worker in here.prefill}
    for worker in here.decode:
        for visit in worker.visits:
            assert visit.body.kv_transfer_params is not None
            assert revisions[visit.body.kv_transfer_params.remote_engine_id or ""] == worker.revision


def test_two_revisions_side_by_side(run: Run) -> None:
    async def test(here: World) -> None:
        replies = await asyncio.gather(*(here.post({**HELLO, "stream": True}) for _ in range(16)))
        assert [text_of(reply.body) for reply in replies] == [TEXT] * 16
        assert all(worker.visits for worker in here.workers), "both serve"
        only_equal_pairs(here)

    run(test, prefill=2, decode=2, revisions=("r1", "r2"))


@pytest.mark.parametrize("streamed", [True, False])
def test_decode_of_prefills_revision_drains_between_the_legs(run: Run, streamed: bool) -> None:
    """A rollout takes it while prompts are computed that only it could go on with: the other revision computes anew."""

    async def test(here: World) -> None:
        old, new = here.prefill
        old.pause = 0.8
        before = resubmitted("pair_gone")
        requests = [asyncio.create_task(here.post({**HELLO, "stream": streamed})) for _ in range(8)]
        await until(lambda: len(old.visits) > 0)
        here.decode[0].draining = True
        for reply in await asyncio.gather(*requests):
            assert reply.status == 200
            text = text_of(reply.body) if streamed else json.loads(reply.body)["choices"][0]["message"]["content"]
            assert text == TEXT
        assert not here.decode[0].visits
        assert resubmitted("pair_gone") == before + len(old.visits)
        assert len(new.visits) == 8
        only_equal_pairs(here)

    run(test, prefill=2, decode=2, revisions=("r1", "r2"))


def test_decode_of_prefills_revision_dies_for_good(run: Run) -> None:
    """In the middle of an answer; it is waited for a while, for it might come back."""

    async def test(here: World) -> None:
        here.decode[0].pause = 0.02
        requests = [asyncio.create_task(here.post({**HELLO, "stream": True})) for _ in range(6)]
        await until(lambda: len(here.decode[0].running) >= 2)
        await asyncio.sleep(0.2)
        here.decode[0].die()
        assert [text_of(reply.body) for reply in await asyncio.gather(*requests)] == [TEXT] * 6
        assert sum(visit.body.output_tokens > 1 for visit in here.decode[1].visits) >= 2
        only_equal_pairs(here)

    run(test, prefill=2, decode=2, revisions=("r1", "r2"))
