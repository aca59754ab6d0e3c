"""Pairs of place and release a second: the core alone, and one replica over HTTP. `python -m tests.bench.scheduler`."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator

import msgspec
import uvloop

from services.common.http_client import HttpClient
from services.common.wire import Capacity, Heartbeat, Layout, Load, Phase, PlaceRequest, ReleaseRequest
from services.scheduler.core import Limits, Scheduler
from tests.services.scheduler.replicas import Cluster, cluster

LAYOUT = Layout(dtype="float32", block_size=64, layers=30, kv_heads=3, head_dim=64)


def heartbeat(number: int, phase: Phase, active: int = 0, sequence: int = 1) -> Heartbeat:
    """A worker with `active` requests of other gateways."""
    return Heartbeat(
        worker_id=f"{phase}-{number}",
        engine_id=f"{phase}-{number}/1",
        phase=phase,
        url="http://127.0.0.1:1",
        model="m",
        revision="r",
        layout=LAYOUT,
        capacity=Capacity(max_running=32, max_waiting=64, max_model_len=8192, kv_blocks=4096),
        load=Load(
            running=active, kv_blocks_free=4096 - 4 * active, active=[f"{phase}{number}-{n}" for n in range(active)]
        ),
        sequence=sequence,
    )


def ask(number: int, phase: Phase) -> PlaceRequest:
    """A request of a usual size."""
    return PlaceRequest(f"req-{number:024d}", phase, "m", 400, 200, 60.0)


def core_rate(workers: int, active: int, waiting: int = 0, rounds: int = 20_000) -> float:
    """Pairs of place and release a second, with `waiting` requests in the queue that fit nowhere."""
    scheduler = Scheduler(Limits(), 0.0, seed=0)
    for number in range(workers):
        scheduler.heartbeat(heartbeat(number, "prefill", active), 10.0)
        scheduler.heartbeat(heartbeat(number, "decode", active), 10.0)
    for number in range(waiting):
        scheduler.place(
            PlaceRequest(f"w{number}", "decode", "m", 400, 200, 1e6, exclude=[f"decode-{n}/1" for n in range(workers)]),
            10.0,
        )
    began = time.perf_counter()
    for number in range(rounds):
        ticket = scheduler.place(ask(number, "decode"), 10.0)
        assert ticket.worker is not None
        scheduler.release(ticket.request.request_id, "decode", 10.0)
    return rounds / (time.perf_counter() - began)


def tick_seconds(workers: int, waiting: int) -> float:
    """One tick with a full queue for which there are places but no KV blocks: the dearest case."""
    scheduler = Scheduler(Limits(), 0.0, seed=0)
    for number in range(workers):
        beat = heartbeat(number, "decode")
        beat.load.kv_blocks_free = 1
        scheduler.heartbeat(beat, 10.0)
    for number in range(waiting):
        scheduler.place(ask(number, "decode"), 10.0)
    began = time.perf_counter()
    for _ in range(20):
        scheduler.tick(11.0)
    return (time.perf_counter() - began) / 20


@contextlib.asynccontextmanager
async def one_replica(workers: int) -> AsyncIterator[Cluster]:
    """A process that has heard of its workers; they beat while it is measured."""
    async with cluster(queue=256) as made:

        async def beat() -> None:
            for sequence in range(1, 1_000_000):
                for number in range(workers):
                    for phase in ("prefill", "decode"):
                        body = msgspec.json.encode(heartbeat(number, phase, 0, sequence))
                        await made.client.request("POST", f"{made.replicas[0].url}/v1/heartbeat", body, timeout=5)
                await asyncio.sleep(0.5)

        beating = asyncio.create_task(beat())
        await made.knows(2 * workers)
        try:
            yield made
        finally:
            beating.cancel()


async def http_rate(workers: int, clients: int, seconds: float = 4.0) -> tuple[float, float]:
    """(pairs of place and release a second, median seconds of a placement) with so many gateways' calls at once."""
    async with one_replica(workers) as made:
        url, times, loop = made.replicas[0].url, [], asyncio.get_running_loop()
        end = loop.time() + seconds

        async def call(client: HttpClient, lane: int) -> None:
            number = lane * 10_000_000
            while loop.time() < end:
                number += 1
                request = ask(number, "decode")
                began = time.perf_counter()
                reply = await client.request("POST", f"{url}/v1/place", msgspec.json.encode(request), timeout=10)
                times.append(time.perf_counter() - began)
                assert reply.status == 200, reply.body
                body = msgspec.json.encode(ReleaseRequest(request.request_id, "decode"))
                await client.request("POST", f"{url}/v1/release", body, timeout=10)

        await asyncio.gather(*(call(made.client, lane) for lane in range(clients)))
        return len(times) / seconds, statistics.median(times)


def main() -> None:
    """Print what was measured."""
    for workers, active, waiting in ((2, 0, 0), (2, 16, 0), (16, 16, 0), (100, 16, 0), (2, 16, 200)):
        rate = core_rate(workers, active, waiting)
        print(f"core: {workers:3} workers a phase, {active:2} active each, {waiting:3} waiting: {rate:8.0f} pairs/s")
    print(f"core: tick with 256 waiting on 100 workers without blocks: {tick_seconds(100, 256) * 1e3:.1f} ms")
    for clients in (1, 16):
        rate, median = uvloop.run(http_rate(2, clients))
        print(f"http: 2 workers a phase, {clients:2} at once: {rate:6.0f} pairs/s, place p50 {median * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
