"""The client against peers that behave badly, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from services.common.errors import DeadlineExceeded, NotFound, Saturated, UpstreamFailed
from services.common.http_client import HttpClient
from services.common.http_connection import PAUSE_AT
from services.common.http_server import App, Request, Response, Stream
from tests.services.common.serving import serving, until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def peer(talk: Talk) -> AsyncIterator[str]:
    """A peer that does with each connection what `talk` says; yields its URL."""
    open_writers = []

    async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await talk(reader, writer)

    server = await asyncio.start_server(on_connect, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()
        for writer in open_writers:
            writer.transport.abort()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def client() -> AsyncIterator[HttpClient]:
    made = HttpClient()
    try:
        yield made
    finally:
        await made.close()


async def read_request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


def test_connections_are_kept() -> None:
    connections: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(connections)
        connections.append(0)
        while await read_request(reader):
            connections[mine] += 1
            writer.write(OK)

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            for _ in range(3):
                assert (await http.request("GET", url, timeout=5)).body == b"ok"
            both = await asyncio.gather(*(http.request("GET", url, timeout=5) for _ in range(2)))
            assert [reply.status for reply in both] == [200, 200]

    asyncio.run(main())
    assert sorted(connections) == [1, 4]


def test_a_stale_connection_is_replaced_once() -> None:
    """The peer closes when it has been asked a second time, as one does whose idle limit has just passed."""
    requests: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = len(requests)
        requests.append(0)
        while True:
            await read_request(reader)
            requests[mine] += 1
            if requests[mine] > 1:
                writer.transport.abort()
                return
            writer.write(OK)

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            await asyncio.gather(*(http.request("GET", url, timeout=5) for _ in range(3)))
            assert (await http.request("GET", url, timeout=5)).body == b"ok"

    asyncio.run(main())
    assert sorted(requests) == [1, 1, 1, 2]  # one stale connection was tried, then a new one


def test_a_new_connection_that_breaks_is_not_retried() -> None:
    requests: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.transport.abort()

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            with pytest.raises(UpstreamFailed, match="closed the connection"):
                await http.request("POST", url, b"{}", timeout=5)

    asyncio.run(main())
    assert len(requests) == 1


def test_an_unasked_answer_is_not_taken_for_the_next() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await asyncio.sleep(0.05)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            for _ in range(2):
                assert (await http.request("GET", url, timeout=5)).status == 200
                await asyncio.sleep(0.15)

    asyncio.run(main())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ],
)
def test_the_peer_dies_in_the_middle_of_its_body(answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            with pytest.raises(UpstreamFailed):
                await http.request("GET", url, timeout=5)
            async with http.stream("GET", url, timeout=5) as reply:
                assert await reply.__anext__() == b"half"
                with pytest.raises(UpstreamFailed):
                    await reply.__anext__()

    asyncio.run(main())


def test_not_http() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await reader.read()

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            with pytest.raises(UpstreamFailed, match="HTTP"):
                await http.request("GET", url, timeout=5)

    asyncio.run(main())


def test_nobody_there() -> None:
    async def main() -> None:
        async with peer(lambda _reader, _writer: asyncio.sleep(0)) as url:
            pass
        async with client() as http:
            with pytest.raises(UpstreamFailed, match="no connection"):
                await http.request("GET", url, timeout=5)

    asyncio.run(main())


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"])
def test_the_deadline(head: bytes) -> None:
    """Before the status and after it; the connection is closed, which the peer sees."""
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head)
        await reader.read()
        gone.set()

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            with pytest.raises(DeadlineExceeded):
                await http.request("GET", url, timeout=0.2)
            await until(gone.is_set)

    asyncio.run(main())


def test_silence_counts_as_failure() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(4):
            await asyncio.sleep(0.1)
            writer.write(b"1\r\nx\r\n")
        await reader.read()

    async def main() -> None:
        async with (
            peer(talk) as url,
            client() as http,
            http.stream("GET", url, timeout=30, silence=0.3) as reply,
        ):
            assert b"".join([await reply.__anext__() for _ in range(4)]) == b"xxxx"
            with pytest.raises(UpstreamFailed, match="sent nothing"):
                await reply.__anext__()

    asyncio.run(main())


def test_leaving_early_closes() -> None:
    gone = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await reader.read()
        gone.set()

    async def main() -> None:
        async with peer(talk) as url, client() as http:
            async with http.stream("GET", url, timeout=30) as reply:
                assert await reply.__anext__() == b"x"
            await until(gone.is_set)

    asyncio.run(main())


def test_a_slow_reader_pauses_the_peer() -> None:
    """The peer's `drain` blocks once the socket's buffers and ours are full, and nothing is lost."""
    piece, pieces = b"x" * 65536, 400
    written: list[int] = []

    async def items() -> AsyncIterator[bytes]:
        for i in range(pieces):
            written.append(i)
            yield piece

    async def get(_request: Request) -> Response | Stream:
        return Stream(items())

    async def main() -> None:
        app = App()
        app.route("GET", "/", get)
        async with serving(app) as served, client() as http:
            async with http.stream("GET", served.url + "/", timeout=60) as reply:
                size = len(await reply.__anext__())
                await asyncio.sleep(0.5)
                stuck = len(written)
                assert stuck < pieces
                assert reply._connection.buffered < PAUSE_AT + 2**20
                async for part in reply:
                    size += len(part)
            assert size == len(piece) * pieces

    asyncio.run(main())


def test_an_error_answer_keeps_its_kind() -> None:
    async def get(request: Request) -> Response | Stream:
        raise Saturated if request.path == "/full" else NotFound("not here")

    async def main() -> None:
        app = App()
        app.route("GET", "/full", get)
        async with serving(app) as served, client() as http:
            reply = await http.request("GET", served.url + "/full", timeout=5)
            assert reply.headers["retry-after"] == "1"
            with pytest.raises(Saturated):
                reply.raise_for_status("peer")
            with pytest.raises(NotFound):
                (await http.request("GET", served.url + "/other", timeout=5)).raise_for_status("peer")

    asyncio.run(main())


def test_headers_cannot_be_smuggled() -> None:
    async def main() -> None:
        async with client() as http:
            with pytest.raises(ValueError, match="line break"):
                await http.request("GET", "http://127.0.0.1:1/", headers=[("X-A", "b\r\nX-C: d")], timeout=1)

    asyncio.run(main())
