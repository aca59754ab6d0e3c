"""Heartbeats reach every replica that lives, whatever the others do."""

import asyncio
import contextlib
import socket

import msgspec
import pytest

from services.common.discovery import Discovery, resolve
from services.common.errors import EngineFailed, Incompatible
from services.common.http_client import HttpClient
from services.common.http_server import App, json_response
from services.common.wire import Capacity, Heartbeat, HeartbeatAnswer, Layout, Load
from services.worker.registration import Registration
from tests.services.common.serving import serving, until

INTERVAL = 0.05
LAYOUT = Layout(dtype="float32", block_size=64, layers=1, kv_heads=1, head_dim=8)


class Listener:
    """A scheduler that only listens; `error` is what it answers."""

    def __init__(self):
        self.beats, self.error, self.paired = [], None, True
        self.app = App()
        self.app.route("POST", "/v1/heartbeat", self._heartbeat)

    async def _heartbeat(self, request):
        self.beats.append(await request.json(Heartbeat))
        if self.error is not None:
            raise self.error
        return json_response(HeartbeatAnswer(self.paired))


class Life:
    """What a worker would report."""

    def __init__(self):
        self.sequence, self.draining, self.fails = 0, False, False

    def beat(self):
        if self.fails:
            raise RuntimeError("the engine is gone")
        self.sequence += 1
        return Heartbeat(
            worker_id="decode-worker-0",
            engine_id="boot-1",
            phase="decode",
            url="http://127.0.0.1:9",
            model="m",
            revision="r",
            layout=LAYOUT,
            capacity=Capacity(max_running=1, max_waiting=0, max_model_len=64, kv_blocks=1),
            load=Load(),
            sequence=self.sequence,
            draining=self.draining,
        )


@contextlib.asynccontextmanager
async def registered(urls, life, interval=INTERVAL, discovery_interval=60.0, resolve=resolve):
    client = HttpClient(connect_timeout=60.0)
    registration = Registration(
        Discovery(urls, resolve=resolve, interval=discovery_interval), interval, client, life.beat
    )
    await registration.start()
    try:
        yield registration
    finally:
        await registration.stop()
        await client.close()


@contextlib.contextmanager
def silent_port():
    """A port that takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(64)
        yield listening.getsockname()[1]


def run(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 60))


def test_every_replica_hears_each_beat_in_order():
    async def scenario():
        one, two = Listener(), Listener()
        async with serving(one.app) as a, serving(two.app) as b, registered([a.url, b.url + "/"], Life()) as made:
            await until(lambda: min(len(one.beats), len(two.beats)) >= 5)
            assert made.fault is None
        for listener in (one, two):
            sequences = [beat.sequence for beat in listener.beats]
            assert sequences == sorted(set(sequences))

    run(scenario())


def test_a_replica_that_is_dead_or_silent_delays_nobody():
    async def scenario():
        living = Listener()
        with silent_port() as silent, socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
            dead = closed.getsockname()[1]
            async with serving(living.app) as served:
                urls = [f"http://127.0.0.1:{silent}", f"http://127.0.0.1:{dead}", served.url]
                async with registered(urls, Life()) as made:
                    beats = len(living.beats)
                    # More beats than fit into the time that the silent one is given, one after the other.
                    await until(lambda: len(living.beats) >= beats + 8, seconds=5)
                    assert made.fault is None

    run(scenario())


def test_a_replica_that_comes_back_hears_the_next_beat():
    async def scenario():
        first, second = Listener(), Listener()
        async with serving(first.app) as served:
            port = served.port
            async with registered([served.url], Life()) as made:
                await until(lambda: first.beats)
                served.cut()
                await until(lambda: made.fault is not None)
                assert "no scheduler answers" in made.fault
                async with serving(second.app, port):
                    await until(lambda: second.beats and made.fault is None)

    run(scenario())


def test_a_refusal_is_a_fault_with_its_reason_until_it_is_taken_back():
    async def scenario():
        kind, strict = Listener(), Listener()
        strict.error = Incompatible("decode-worker-0 cannot be paired with prefill-worker-0: block_size 16 and 64")
        async with serving(kind.app) as a, serving(strict.app) as b, registered([a.url, b.url], Life()) as made:
            await until(lambda: kind.beats and "block_size 16 and 64" in (made.fault or ""))
            strict.error = None
            await until(lambda: made.fault is None)

    run(scenario())


def test_a_scheduler_that_fails_is_not_one_that_refuses():
    async def scenario():
        good, broken = Listener(), Listener()
        broken.error = EngineFailed("out of order")
        async with serving(good.app) as a, serving(broken.app) as b, registered([a.url, b.url], Life()) as made:
            await until(lambda: len(broken.beats) > 1 and len(good.beats) > 1)
            assert made.fault is None

    run(scenario())


def test_notify_does_not_wait_for_the_interval():
    async def scenario():
        listener, life = Listener(), Life()
        async with serving(listener.app) as served, registered([served.url], life, interval=600.0) as made:
            await until(lambda: len(listener.beats) == 1)
            life.draining = True
            made.notify()
            await until(lambda: len(listener.beats) == 2)
            assert [beat.draining for beat in listener.beats] == [False, True]

    run(scenario())


def test_what_changes_while_a_beat_is_under_way_is_told_by_the_next():
    async def scenario():
        listener, life = Listener(), Life()
        async with serving(listener.app) as served, registered([served.url], life, interval=600.0) as made:
            await until(lambda: life.sequence == 1)  # made, and not yet answered
            life.draining = True
            made.notify()
            await until(lambda: any(beat.draining for beat in listener.beats))

    run(scenario())


def test_before_the_first_answer_and_after_a_crash_it_is_not_ready():
    async def scenario():
        listener, life = Listener(), Life()
        async with serving(listener.app) as served, registered([served.url], life) as made:
            assert made.fault is not None
            await until(lambda: made.fault is None)
            life.fails = True
            await until(lambda: "the engine is gone" in (made.fault or ""))

    run(scenario())


def test_it_first_gets_ready_when_one_of_the_other_phase_is_there():
    async def scenario():
        one, two = Listener(), Listener()
        one.paired = two.paired = False
        async with serving(one.app) as a, serving(two.app) as b, registered([a.url, b.url], Life()) as made:
            await until(lambda: "of the same revision" in (made.fault or ""))
            two.paired = True
            await until(lambda: made.fault is None)
            two.paired = False
            heard = len(two.beats)
            await until(lambda: len(two.beats) > heard + 2)
            assert made.fault is None, "others count on its being ready, whoever else dies"

    run(scenario())


def test_what_is_no_scheduler_registers_nobody():
    async def scenario():
        class Other(Listener):
            async def _heartbeat(self, request):
                return json_response([])

        async with serving(Other().app) as served, registered([served.url], Life()) as made:
            await until(lambda: "does not answer as a scheduler does" in (made.fault or ""))

    run(scenario())


def test_stop_is_idempotent_and_ends_the_beats():
    async def scenario():
        listener = Listener()
        async with serving(listener.app) as served, registered([served.url], Life()) as made:
            await until(lambda: listener.beats)
            await made.stop()
            await made.stop()
            heard = len(listener.beats)
            await asyncio.sleep(INTERVAL * 4)
            assert len(listener.beats) == heard

    run(scenario())


def test_a_heartbeat_survives_the_wire():
    beat = Life().beat()
    assert msgspec.json.decode(msgspec.json.encode(beat), type=Heartbeat) == beat
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"worker_id": 1}', type=Heartbeat)


def test_replicas_that_are_found_by_name_come_and_go():
    async def scenario():
        one, two = Listener(), Listener()
        addresses = ["127.0.0.1"]

        async def resolve(_name, _port):
            return list(addresses)

        async with serving(one.app) as a, serving(two.app, a.port, host="127.0.0.2"):
            urls = [f"dns+http://scheduler:{a.port}"]
            async with registered(urls, Life(), resolve=resolve, discovery_interval=0.02) as made:
                await until(lambda: one.beats and made.fault is None)
                assert not two.beats
                addresses.append("127.0.0.2")
                await until(lambda: two.beats)
                addresses.remove("127.0.0.1")
                await until(lambda: len(made._loops) == 1)
                heard = len(one.beats)
                await until(lambda: len(two.beats) > 5)
                assert len(one.beats) <= heard + 1, "one may have been under way"
                assert made.fault is None

    run(scenario())


def test_a_name_without_addresses_is_told():
    async def scenario():
        async def resolve(_name, _port):
            raise OSError("no such name")

        async with registered(["dns+http://scheduler:1"], Life(), resolve=resolve, discovery_interval=0.02) as made:
            await until(lambda: "scheduler:1 has no address: no such name" in (made.fault or ""))

    run(scenario())
