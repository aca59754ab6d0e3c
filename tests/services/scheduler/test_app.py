"""Replicas as real processes, over real sockets, with real heartbeats."""

import asyncio
import json
import os
import subprocess
import sys

from services.common import errors
from services.common.http_client import HttpClient
from services.common.settings import SchedulerSettings
from services.scheduler.app import SchedulerApp
from tests.services.common.serving import serving
from tests.services.scheduler.replicas import ROOT, beating, cluster, eventually


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 60))


def test_a_killed_replica_costs_no_request(beat, ask):  # CASES 21
    async def scenario():
        async with (
            cluster(2) as made,
            beating(made, beat, "prefill-0"),
            beating(made, beat, "decode-0", max_running=1) as registration,
        ):
            await made.knows(2, 0)
            await made.knows(2, 1)
            assert (await made.place(ask("a"), 0)).status == 200
            waiting = asyncio.create_task(made.place(ask("b"), 0))
            await made.waiting(1, 0)
            made.replicas[0].kill()
            try:
                await waiting
                raise AssertionError("a killed process does not answer")
            except errors.UpstreamFailed:
                pass
            assert (await made.place(ask("b"), 1)).status == 200
            assert registration.fault is None
            made.replicas[0].start()
            await made.ready()
            await made.knows(2, 0)  # at the next beat it knows what the other knows

    run(scenario())


def test_saturated_and_absent_are_told_apart(beat, ask):  # CASES 17
    async def scenario():
        async with cluster(queue=1) as made:
            async with beating(made, beat, "decode-0", max_running=1):
                await made.knows(1)
                await made.place(ask("a"))
                waiting = asyncio.create_task(made.place(ask("b", timeout=60)))
                await made.waiting(1)
                full = await made.place(ask("c"))
                assert full.status == 429
                assert errors.BUSY in json.loads(full.body)["error"]["message"]
                assert int(full.headers["retry-after"]) >= 1

                async def unknown() -> bool:  # once the replica has run long enough to know every worker
                    return (await made.place(ask("d", model="another"))).status == 404

                await eventually(unknown)
            absent = await waiting  # the only worker has gone: after the grace it is told so
            assert (absent.status, json.loads(absent.body)["error"]["code"]) == (503, "no_healthy_worker")
            assert (await made.place(ask("e"))).status == 503
            assert await made.metric('diphase_scheduler_placements_total{outcome="saturated",phase="decode"}') >= 1

    run(scenario())


def test_a_client_that_hangs_up_leaves_the_queue(beat, ask):
    async def scenario():
        async with cluster() as made, beating(made, beat, "decode-0", max_running=1):
            await made.knows(1)
            await made.place(ask("a"))
            gone = asyncio.create_task(made.place(ask("b", prompt_tokens=77)))
            await made.waiting(1)
            assert await made.metric('diphase_scheduler_queued_tokens{phase="decode"}') == 77
            gone.cancel()
            await made.waiting(0)
            assert await made.metric('diphase_scheduler_queued_tokens{phase="decode"}') == 0
            next_one = asyncio.create_task(made.place(ask("c")))
            await made.waiting(1)
            assert await made.release("a")
            assert (await next_one).status == 200
            assert await made.metric('diphase_scheduler_placements_total{outcome="cancelled",phase="decode"}') == 1

    run(scenario())


def test_a_placement_whose_caller_has_gone_is_given_to_the_next(beat, ask):
    async def scenario():
        async with cluster(queue=64) as made, beating(made, beat, "decode-0", max_running=1):
            await made.knows(1)
            await made.place(ask("first"))
            callers = [asyncio.create_task(made.place(ask(f"r{n}"))) for n in range(20)]
            await made.waiting(20)
            last = asyncio.create_task(made.place(ask("last")))
            await made.waiting(21)
            released = asyncio.create_task(made.release("first"))
            for caller in callers:  # while the place that was released goes to one of them
                caller.cancel()
            assert (await last).status == 200
            assert await released

            async def only_last() -> bool:
                return (await made.report())["placements"] == 1

            await eventually(only_last)

    run(scenario())


def test_a_replica_that_stops_sends_waiters_on_and_ends_well(beat, ask):
    async def scenario():
        async with cluster(2) as made, beating(made, beat, "decode-0", max_running=1):
            await made.knows(1)
            await made.place(ask("a"))
            waiting = asyncio.create_task(made.place(ask("b")))
            await made.waiting(1)
            stopping = asyncio.create_task(asyncio.to_thread(made.replicas[0].stop))
            answer = await waiting
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (503, "draining")
            assert await stopping == 0

    run(scenario())


def test_a_release_at_the_other_replica_frees_what_the_worker_reports(beat, ask):
    async def scenario():
        active = []
        async with cluster(2) as made, beating(made, beat, "decode-0", max_running=1, active=active):
            await made.knows(1, 0)
            await made.knows(1, 1)
            await made.place(ask("a"), 0)
            active.append("a")

            # The other replica learns of it by the next heartbeat, and lets the next one wait.
            async def full() -> bool:
                return (await made.report(1))["workers"][0]["requests"] == 1

            await eventually(full)
            waiting = asyncio.create_task(made.place(ask("b"), 1))
            await made.waiting(1, 1)
            assert await made.release("a", replica=1)
            assert (await waiting).status == 200

    run(scenario())


def test_workers_that_cannot_be_paired_are_refused_by_name(beat):  # CASES 11
    async def scenario():
        async with cluster() as made, beating(made, beat, "prefill-0"):
            await made.knows(1)
            async with beating(made, beat, "decode-0", tp_size=2) as refused:

                async def told() -> bool:
                    return "cannot be paired" in (refused.fault or "")

                await eventually(told)
                for part in ("decode-0", "prefill-0", "tp_size 2 and 1"):
                    assert part in refused.fault
                assert len((await made.report())["workers"]) == 1

    run(scenario())


def test_a_restarted_worker_is_known_by_its_new_engine_alone(beat, ask):  # CASES 13
    async def scenario():
        async with cluster() as made:
            async with beating(made, beat, "decode-0"):
                await made.knows(1)
            async with beating(made, beat, "decode-0", engine_id="decode-0/boot-2"):

                async def renewed() -> bool:
                    return [w["engine_id"] for w in (await made.report())["workers"]] == ["decode-0/boot-2"]

                await eventually(renewed)
                assert json.loads((await made.place(ask("a"))).body)["engine_id"] == "decode-0/boot-2"

    run(scenario())


def test_wrong_bodies_and_paths(ask):
    async def scenario():
        async with cluster() as made:
            url = made.replicas[0].url
            for path in ("place", "release", "heartbeat"):
                for body in (b"", b"{", b'{"request_id": 1}', b"[]", b'{"phase": "sideways"}', b"\xff"):
                    reply = await made.client.request("POST", f"{url}/v1/{path}", body, timeout=5)
                    assert reply.status == 400, (path, body)
            assert (await made.client.request("GET", f"{url}/v1/place", timeout=5)).status == 405
            for path in ("health", "ready", "metrics"):
                assert (await made.client.request("GET", f"{url}/{path}", timeout=5)).status == 200

    run(scenario())


def test_a_replica_whose_time_stands_still_is_not_healthy():
    async def scenario():
        now = 0.0
        settings = SchedulerSettings(instance="still", port=1)
        scheduler = SchedulerApp(settings, lambda: now)
        client = HttpClient()
        async with serving(scheduler.app) as served:
            assert (await client.request("GET", f"{served.url}/health", timeout=5)).status == 200
            now = 20.0
            reply = await client.request("GET", f"{served.url}/health", timeout=5)
            assert (reply.status, json.loads(reply.body)["reason"].endswith("for 20 s")) == (503, True)
            ticks = asyncio.create_task(scheduler.run_ticks())
            async with asyncio.timeout(10):
                while (await client.request("GET", f"{served.url}/health", timeout=5)).status != 200:
                    pass
            ticks.cancel()
            await client.close()

    run(scenario())


def test_wrong_settings_are_one_sentence():
    done = subprocess.run(
        [sys.executable, "-m", "services.scheduler"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PORT": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "PORT" in done.stderr
    assert "INSTANCE" in done.stderr
