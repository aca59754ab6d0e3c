"""Replicas found by name: those that come are taken, those that vanish dropped, and nothing is lost when DNS fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import structlog
import uvloop

from services.common.discovery import Discovery, resolve
from services.common.metrics import REGISTRY
from tests.services.common.serving import until

NAME = "dns+https://scheduler:8000"
Run = Callable[[Coroutine[Any, Any, None]], None]


class Names:
    """A resolver that answers what it is told to: addresses, an error, or nothing at all (None)."""

    def __init__(self, *addresses: str) -> None:
        self.answer: tuple[str, ...] | Exception | None = addresses
        self.asked: list[tuple[str, int]] = []
        self.hanging = asyncio.Event()

    async def resolve(self, name: str, port: int) -> tuple[str, ...]:
        self.asked.append((name, port))
        if self.answer is None:
            await self.hanging.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or ()

    async def again(self, times: int = 2) -> None:
        """Until that many questions more have been asked."""
        wanted = len(self.asked) + times
        await until(lambda: len(self.asked) >= wanted)


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return request.param  # type: ignore[no-any-return]


def failures() -> float:
    return REGISTRY.get_sample_value("diphase_discovery_failures_total", {"name": NAME}) or 0


def test_addresses_come_and_go(run: Run) -> None:
    async def main() -> None:
        names, seen = Names("10.0.0.2", "10.0.0.1", "10.0.0.1"), list[tuple[str, ...]]()
        found = Discovery(["http://127.0.0.1:7/", NAME], resolve=names.resolve, interval=0.01)
        assert found.urls == ("http://127.0.0.1:7",), "what is no name is there from the beginning"
        assert "dns+https://scheduler:8000 has no address: not asked yet" in found.fault
        found.start(lambda: seen.append(found.urls))
        await until(lambda: len(found.urls) == 3)
        assert names.asked[0] == ("scheduler", 8000)
        names.answer = ("10.0.0.2", "fd00::3")
        await until(lambda: "https://10.0.0.1:8000" not in found.urls)
        names.answer = ("fd00::3",)
        await until(lambda: len(found.urls) == 2)
        await names.again()
        await found.stop()
        await found.stop()
        assert seen == [
            ("http://127.0.0.1:7", "https://10.0.0.1:8000", "https://10.0.0.2:8000"),
            ("http://127.0.0.1:7", "https://10.0.0.2:8000", "https://[fd00::3]:8000"),
            ("http://127.0.0.1:7", "https://[fd00::3]:8000"),
        ]
        asked = len(names.asked)
        await asyncio.sleep(0.05)
        assert len(names.asked) == asked

    run(main())


@pytest.mark.parametrize("failure", [socket.gaierror(-3, "try again"), RuntimeError("a fault"), UnicodeError("x"), ()])
def test_when_dns_fails_the_last_answer_stays(failure: Exception | tuple[str, ...]) -> None:
    async def main() -> None:
        names = Names("10.0.0.1")
        found = Discovery([NAME], resolve=names.resolve, interval=0.01)
        found.start()
        await until(lambda: bool(found.urls))
        before = failures()
        with structlog.testing.capture_logs() as said:
            names.answer = failure
            await names.again(4)
            assert found.urls == ("https://10.0.0.1:8000",)
            assert found.fault == ""
            assert failures() >= before + 3
            names.answer = ("10.0.0.9",)
            await until(lambda: found.urls == ("https://10.0.0.9:8000",))
        assert [line["event"] for line in said] == ["addresses_unknown", "addresses_changed"], "told once"
        await found.stop()

    asyncio.run(main())


def test_a_question_that_hangs_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one holds a thread of the resolver's; its answer counts, however late."""
    monkeypatch.setattr("services.common.discovery.LOOKUP_SECONDS", 0.02)

    async def main() -> None:
        names = Names()
        names.answer = None
        found = Discovery([NAME], resolve=names.resolve, interval=0.01)
        found.start()
        before = failures()
        await until(lambda: failures() >= before + 3)
        assert len(names.asked) == 1
        assert "no answer within" in found.fault
        names.answer = ("10.0.0.1",)
        names.hanging.set()
        await until(lambda: found.urls == ("https://10.0.0.1:8000",))
        await found.stop()

    asyncio.run(main())


def test_stop_while_a_question_hangs() -> None:
    async def main() -> None:
        names = Names()
        names.answer = None
        found = Discovery([NAME], resolve=names.resolve, interval=0.01)
        found.start()
        await until(lambda: bool(names.asked))
        await asyncio.wait_for(found.stop(), 5)

    asyncio.run(main())


def test_whoever_needs_a_change_does_not_wait_for_the_interval() -> None:
    async def main() -> None:
        names = Names("10.0.0.1")
        found = Discovery([NAME], resolve=names.resolve, interval=3600)
        assert found.changes
        assert not Discovery(["http://127.0.0.1:7"]).changes
        found.start()
        await until(lambda: bool(found.urls))
        known = found.urls
        await found.change(known, 0.05)
        assert found.urls == known
        names.answer = ("10.0.0.2",)
        await asyncio.wait_for(found.change(known, 3600), 20)
        assert found.urls == ("https://10.0.0.2:8000",)
        await found.stop()

    asyncio.run(main())


def test_the_systems_resolver(run: Run) -> None:
    async def main() -> None:
        assert set(await resolve("localhost", 80)) <= {"127.0.0.1", "::1"}
        assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
        assert await resolve("::1", 80) == ["::1"]
        for no_name in ("no-such-name.invalid", "a" * 70 + ".invalid"):
            with pytest.raises((OSError, UnicodeError)):
                await resolve(no_name, 80)
        found = Discovery(["dns+http://localhost:80"])
        found.start()
        await until(lambda: bool(found.urls))
        assert found.urls[0] in ("http://127.0.0.1:80", "http://[::1]:80")
        await found.stop()

    run(main())
