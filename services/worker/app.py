"""A worker's parts put together: engine, KV pool and leases, HTTP, heartbeats, and the drain."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import time
import uuid
from collections.abc import AsyncIterator, Iterator

from services.common import logs
from services.common.discovery import Discovery
from services.common.http_client import HttpClient
from services.common.http_server import App, Request, Response, json_response
from services.common.settings import WorkerSettings
from services.common.tls import Certificates
from services.common.wire import Capacity, Heartbeat, LeaseAnswer, LeaseRequest
from services.worker import metrics
from services.worker.completions import Completions
from services.worker.engine.build import build
from services.worker.engine.protocol import Engine
from services.worker.handoff import Handoff
from services.worker.mailbox import Mailroom, request_id_of
from services.worker.registration import Registration

STUCK_SECONDS = 120.0  # with work to do and no step for so long, the engine counts as dead
SWEEP_SECONDS = 1.0
_log = logs.get()


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """What is loaded inside makes half a million objects that stay: looking through them again and again takes a tenth
    of a worker's start. Afterwards they are looked through once and never more, which spares decode the pauses.
    """
    gc.disable()
    try:
        yield
        gc.collect()
        gc.freeze()
    finally:
        gc.enable()


class Worker:
    """One worker of one phase. With `tls` it speaks so to the other roles, KV included."""

    def __init__(self, settings: WorkerSettings, tls: Certificates | None = None) -> None:
        self.settings = settings
        self._tls = tls
        self.engine_id = uuid.uuid4().hex  # new at each boot: nobody mistakes this process for the one before
        self.app = App(health=self._health, ready=self._ready)
        self._client = HttpClient(certificates=tls)
        self._sequence = 0
        self._progress = (-1, time.monotonic())
        self._engine: Engine | None = None
        self._mailroom: Mailroom | None = None
        self._completions: Completions | None = None
        self._registration: Registration | None = None
        self.app.route("GET", "/v1/models", self._get_models)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the model, register, serve; everything is given back at the end."""
        settings = self.settings
        async with contextlib.AsyncExitStack() as held:
            held.push_async_callback(self._client.close)
            with _collector_off():
                pool, engine = await asyncio.to_thread(build, settings)
            held.callback(pool.close)
            held.callback(engine.stop)
            handoff = Handoff(settings, self.engine_id, engine, pool, self._client, self._tls)
            held.callback(handoff.close)
            self._mailroom = Mailroom(engine)
            engine.start(self._mailroom.deliver)
            self._completions = Completions(settings, engine, self._mailroom, handoff)
            self._engine, self._handoff = engine, handoff
            self._progress = (engine.steps, time.monotonic())
            metrics.watch_load(settings.model_name, engine.num_blocks, engine.load)
            metrics.watch_busy(lambda: engine.busy_seconds)
            self.app.route("POST", "/v1/completions", self._completions.post)
            self.app.route("POST", "/v1/kv/renew", self._post_renew)
            self.app.route("POST", "/v1/kv/release", self._post_release)
            self._registration = Registration(
                Discovery(settings.scheduler_urls), settings.heartbeat_seconds, self._client, self._heartbeat
            )
            await self._registration.start()
            held.push_async_callback(self._registration.stop)
            sweeper = asyncio.create_task(self._sweep())
            held.callback(sweeper.cancel)
            _log.info("worker_ready", phase=settings.phase, model=settings.model_name, kv_blocks=engine.num_blocks)
            yield

    async def drain(self) -> None:
        """Take no more requests; return when none runs and no KV is kept. Bounded by the caller."""
        if self._completions is None or self._mailroom is None or self._registration is None:
            return
        self._completions.draining = True
        self._registration.notify()
        while len(self._mailroom) or self._handoff.open_leases:  # noqa: ASYNC110 - leases also end in threads
            await asyncio.sleep(0.05)
        _log.info("drained")

    def _heartbeat(self) -> Heartbeat:
        engine, settings = self._engine, self.settings
        assert engine is not None
        assert self._completions is not None
        load = engine.load()
        load.active = [request_id_of(visit) for visit in load.active]
        self._sequence += 1
        return Heartbeat(
            worker_id=settings.instance,
            engine_id=self.engine_id,
            phase=settings.phase,
            url=settings.advertise_url,
            model=settings.model_name,
            revision=settings.model_revision,
            layout=engine.layout,
            capacity=Capacity(
                settings.worker_max_running, settings.worker_max_waiting, settings.max_model_len, engine.num_blocks
            ),
            load=load,
            sequence=self._sequence,
            draining=self._completions.draining,
        )

    def _health(self) -> str | None:
        """Alive while steps are made or there is nothing to do; a busy engine is not a dead one."""
        engine = self._engine
        if engine is None:
            return None  # loading
        if engine.fault is not None:
            return engine.fault
        still = time.monotonic() - self._progress[1]
        if still < STUCK_SECONDS:
            return None
        return f"the engine has {engine.load().running} requests running and made no step for {still:.0f} s"

    def _ready(self) -> str | None:
        if self._registration is None:
            return "loading the model"
        return self._registration.fault

    async def _get_models(self, _request: Request) -> Response:
        name = self.settings.model_name
        return json_response({"object": "list", "data": [{"id": name, "object": "model", "owned_by": "diphase"}]})

    async def _post_renew(self, request: Request) -> Response:
        body = await request.json(LeaseRequest)
        return json_response(LeaseAnswer(self._handoff.renew(body)))

    async def _post_release(self, request: Request) -> Response:
        self._handoff.release(await request.json(LeaseRequest))
        return json_response({})

    async def _sweep(self) -> None:
        """Every second: reclaim leases whose time is over, and look after the engine."""
        engine = self._engine
        assert engine is not None
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._handoff.sweep()
            if engine.steps != self._progress[0] or not engine.load().running:
                self._progress = (engine.steps, time.monotonic())
            if engine.ended:
                _log.critical("engine_ended")
                signal.raise_signal(signal.SIGTERM)  # drain, since leases can still be read; a supervisor starts anew
                return
