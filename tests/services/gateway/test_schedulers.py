"""Any replica will do: those that are gone, stop, or know nobody yet are passed over, and successors are found."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from services.common.discovery import Discovery
from services.common.errors import Absent, DiphaseError, Draining, ModelNotFound, Saturated
from services.common.http_client import HttpClient
from services.common.http_server import App, Request, Response, Stream, json_response
from services.common.wire import Placement, PlaceRequest
from services.gateway.schedulers import Schedulers
from tests.services.common.serving import Served, serving, until

REQUEST = PlaceRequest(request_id="r", phase="prefill", model="m", prompt_tokens=1, max_tokens=1, timeout=30.0)


class Replica:
    """A scheduler that places everything at one worker, or answers `error`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.error: DiphaseError | None = None
        self.asked: list[PlaceRequest] = []
        self.app = App()
        self.app.route("POST", "/v1/place", self._place)

    async def _place(self, request: Request) -> Response | Stream:
        self.asked.append(await request.json(PlaceRequest))
        if self.error is not None:
            raise self.error
        return json_response(Placement(self.name, "e", "http://w", "r", "l"))


class Pods:
    """Replicas behind one name, each at an address of its own and all at one port."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.port = 0

    async def resolve(self, _name: str, _port: int) -> list[str]:
        return list(self.addresses)

    @contextlib.asynccontextmanager
    async def serving(self, replica: Replica, address: str) -> AsyncIterator[Served]:
        async with serving(replica.app, self.port, host=address) as served:
            self.port = served.port
            yield served

    @contextlib.asynccontextmanager
    async def schedulers(self) -> AsyncIterator[Schedulers]:
        client = HttpClient()
        found = Discovery([f"dns+http://scheduler:{self.port}"], resolve=self.resolve, interval=0.02)
        made = Schedulers(client, found, "gateway-0")
        try:
            yield made
        finally:
            await made.close()
            await client.close()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 60))


@pytest.mark.parametrize("error", [Absent("nobody"), ModelNotFound("unknown"), Draining("stopping")])
def test_a_replica_that_cannot_say_is_passed_over(error: DiphaseError) -> None:
    """As one that has just begun: workers learn of it a few seconds later than gateways may."""

    async def main() -> None:
        one, two, client = Replica("one"), Replica("two"), HttpClient()
        async with serving(one.app) as a, serving(two.app) as b:
            schedulers = Schedulers(client, Discovery([a.url, b.url]), "gateway-0")
            for first, second in ((one, two), (two, one)):
                first.error, second.error = error, None
                placement, url = await schedulers.place(REQUEST)
                assert (placement.worker_id, url) == (second.name, a.url if second is one else b.url)
        await client.close()

    run(main())


@pytest.mark.parametrize("error", [Absent("nobody", retry_after=7), ModelNotFound("unknown")])
def test_what_all_of_them_say_is_told(error: DiphaseError) -> None:
    async def main() -> None:
        one, two, client = Replica("one"), Replica("two"), HttpClient()
        one.error = two.error = error
        async with serving(one.app) as a, serving(two.app) as b:
            schedulers = Schedulers(client, Discovery([a.url, b.url]), "gateway-0")
            with pytest.raises(Absent, match=error.message) as caught:
                await schedulers.place(REQUEST)
            assert type(caught.value) is Absent
            if isinstance(error, Absent):
                assert caught.value.retry_after == 7
            assert (len(one.asked), len(two.asked)) == (1, 1)
        await client.close()

    run(main())


def test_a_full_queue_is_not_taken_to_the_next() -> None:
    async def main() -> None:
        one, two, client = Replica("one"), Replica("two"), HttpClient()
        one.error = two.error = Saturated()
        async with serving(one.app) as a, serving(two.app) as b:
            with pytest.raises(Saturated):
                await Schedulers(client, Discovery([a.url, b.url]), "gateway-0").place(REQUEST)
            assert len(one.asked) + len(two.asked) == 1
        await client.close()

    run(main())


def test_replicas_of_a_list_that_are_all_gone_are_told_at_once() -> None:
    async def main() -> None:
        one, client = Replica("one"), HttpClient()
        async with serving(one.app) as served:
            served.cut()
        began = time.monotonic()
        with pytest.raises(Absent, match="no scheduler answers"):
            await Schedulers(client, Discovery([served.url]), "gateway-0").place(REQUEST)
        assert time.monotonic() - began < 5
        await client.close()

    run(main())


def test_found_replicas_come_and_go() -> None:
    async def main() -> None:
        pods, one, two = Pods(), Replica("one"), Replica("two")
        async with pods.serving(one, "127.0.0.1"), pods.serving(two, "127.0.0.2"), pods.schedulers() as schedulers:
            assert schedulers.preferred is None
            pods.addresses = ["127.0.0.1"]
            assert (await schedulers.place(REQUEST))[0].worker_id == "one", "the first one is waited for"
            pods.addresses = ["127.0.0.1", "127.0.0.2"]
            await until(lambda: len(schedulers._replicas.urls) == 2)
            assert (await schedulers.place(REQUEST))[0].worker_id == "one", "the preferred one stays"
            pods.addresses = ["127.0.0.2"]
            await until(lambda: len(schedulers._replicas.urls) == 1)
            assert (await schedulers.place(REQUEST))[0].worker_id == "two"
            assert schedulers.preferred == f"http://127.0.0.2:{pods.port}"

    run(main())


def test_successors_of_all_replicas_are_waited_for() -> None:
    """Every replica that is known has been replaced before DNS told so: no request is lost by it."""

    async def main() -> None:
        pods, old, new = Pods(), Replica("old"), Replica("new")
        async with pods.serving(old, "127.0.0.1") as served, pods.schedulers() as schedulers:
            pods.addresses = ["127.0.0.1"]
            await schedulers.place(REQUEST)
            served.cut()
            waiting = asyncio.create_task(schedulers.place(REQUEST))
            async with pods.serving(new, "127.0.0.2"):
                await asyncio.sleep(0.3)
                assert not waiting.done()
                pods.addresses = ["127.0.0.2"]
                placement, url = await waiting
                assert (placement.worker_id, url) == ("new", f"http://127.0.0.2:{pods.port}")
                assert new.asked[0].timeout < REQUEST.timeout - 0.2, "the wait is part of the request's time"

    run(main())


def test_a_restart_at_the_same_address_is_waited_for() -> None:
    async def main() -> None:
        pods, old, new = Pods(), Replica("old"), Replica("new")
        pods.addresses = ["127.0.0.1"]
        async with pods.serving(old, "127.0.0.1"):
            pass
        async with pods.schedulers() as schedulers:
            waiting = asyncio.create_task(schedulers.place(REQUEST))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            async with pods.serving(new, "127.0.0.1"):
                assert (await waiting)[0].worker_id == "new"

    run(main())


def test_a_wait_for_successors_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.gateway.schedulers.SUCCESSOR_SECONDS", 0.3)

    async def main() -> None:
        pods = Pods()
        pods.port = 9
        async with pods.schedulers() as schedulers:
            with pytest.raises(Absent, match="no scheduler answers"):
                await schedulers.place(REQUEST)

    run(main())
