"""Which workers exist, from their heartbeats alone: soft state that a new replica has after one beat of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, get_args

from services.common.errors import Incompatible, InvalidRequest
from services.common.wire import Heartbeat, Phase
from services.scheduler.load import Worker

State = Literal["live", "draining", "absent"]
Pair = tuple[str, str]  # revision, and fingerprint of the layout: only equal ones exchange KV
RETIRED_SECONDS = 60.0  # how long the engine id of a worker that restarted is remembered, from its last heartbeat


class Registry:
    """The workers, by id and by (phase, model)."""

    def __init__(self, heartbeat_timeout: float, absent_grace: float) -> None:
        self.heartbeat_timeout = heartbeat_timeout
        self.absent_grace = absent_grace
        self.models: set[str] = set()  # every one that was ever served here
        self._workers: dict[str, Worker] = {}
        self._roles: dict[tuple[Phase, str], dict[str, Worker]] = {}
        self._retired: dict[str, float] = {}
        self._shares: dict[str, dict[Pair, float]] = {}

    # -- heartbeats
    def observe(self, beat: Heartbeat, now: float) -> tuple[Worker, list[tuple[str, Worker]]]:
        """Take a heartbeat in; returns the worker, and the own placements, with their worker, that ended by it.

        Raises Incompatible where the worker could never be paired with those that live, or is a ghost of one that
        has restarted.
        """
        known = self._workers.get(beat.worker_id)
        if known is not None and known.beat.engine_id == beat.engine_id:
            if beat.sequence <= known.beat.sequence:
                return known, []  # overtaken by a later one on its way
            if _identity(beat) != _identity(known.beat):
                raise InvalidRequest(f"engine {beat.engine_id} has changed: a new engine id belongs to each boot")
            if beat.draining != known.beat.draining:
                self._shares.clear()
            return known, [(request_id, known) for request_id in known.observe(beat, now)]
        if known is not None and beat.engine_id in self._retired and self.state(known, now) != "absent":
            self._retired[beat.engine_id] = now
            raise Incompatible(
                f"worker {beat.worker_id} is now engine {known.beat.engine_id} at {known.beat.url}, so engine "
                f"{beat.engine_id} at {beat.url} is refused: if both processes run, give each its own INSTANCE"
            )
        _check(beat)
        self._refuse_unpairable(beat, now)
        ended = []
        if known is not None:
            self._retired[known.beat.engine_id] = now
            ended = [(request_id, known) for request_id in known.placed]
            self._remove(known)
        self._retired.pop(beat.engine_id, None)
        worker = Worker(beat, now)
        self._workers[beat.worker_id] = worker
        self._roles.setdefault((beat.phase, beat.model), {})[beat.worker_id] = worker
        self.models.add(beat.model)
        self._shares.clear()
        return worker, ended

    def _refuse_unpairable(self, beat: Heartbeat, now: float) -> None:
        for other in self._workers.values():
            theirs = other.beat
            if (theirs.model, theirs.revision) != (beat.model, beat.revision) or theirs.worker_id == beat.worker_id:
                continue
            if theirs.layout != beat.layout and self.state(other, now) != "absent":
                raise Incompatible(
                    f"{beat.phase} worker {beat.worker_id} cannot be paired with {theirs.phase} worker "
                    f"{theirs.worker_id} of the same model {beat.model} and revision {beat.revision}: their KV layouts "
                    f"differ in {beat.layout.difference(theirs.layout)}. Start both with the same settings"
                )

    def expire(self, now: float) -> list[tuple[str, Worker]]:
        """Forget who has been silent for long; returns the own placements that ended so, with their worker."""
        ended = []
        for worker in list(self._workers.values()):
            ended += [(request_id, worker) for request_id in worker.expire(now)]
            if now - worker.beat_at > max(self.absent_grace, self.heartbeat_timeout):
                ended += [(request_id, worker) for request_id in worker.placed]
                self._remove(worker)
        self._retired = {engine: at for engine, at in self._retired.items() if now - at <= RETIRED_SECONDS}
        self._shares.clear()
        return ended

    def _remove(self, worker: Worker) -> None:
        del self._workers[worker.beat.worker_id]
        del self._roles[worker.beat.phase, worker.beat.model][worker.beat.worker_id]

    # -- questions
    def workers(self) -> Iterable[Worker]:
        """All that are known."""
        return self._workers.values()

    def role(self, phase: Phase, model: str) -> Mapping[str, Worker]:
        """Those of a phase and model, by worker id."""
        return self._roles.get((phase, model), {})

    def state(self, worker: Worker, now: float) -> State:
        """Absent after a silence; draining if it said so."""
        if now - worker.beat_at > self.heartbeat_timeout:
            return "absent"
        return "draining" if worker.beat.draining else "live"

    def hoped_for(self, worker: Worker, now: float) -> bool:
        """Whether it takes requests, or did so recently enough to be waited for."""
        return self.state(worker, now) == "live" or now - worker.useful_at <= self.absent_grace

    def expected(self, worker: Worker, now: float) -> bool:
        """Whether it takes requests, or may do so again: one that drains ends, one that fell silent may come back."""
        return self.hoped_for(worker, now) and not worker.beat.draining

    def has_partner(self, worker: Worker, now: float) -> bool:
        """Whether one of the other phase takes requests that this one can be paired with."""
        other: Phase = "decode" if worker.beat.phase == "prefill" else "prefill"
        return any(
            one.pair == worker.pair and self.state(one, now) == "live"
            for one in self.role(other, worker.beat.model).values()
        )

    def pairs(self, model: str, now: float) -> set[Pair]:
        """Those that serve both phases now."""
        return set.intersection(
            *(
                {w.pair for w in self.role(phase, model).values() if self.state(w, now) == "live"}
                for phase in get_args(Phase)
            )
        )

    def shares(self, model: str, now: float) -> Mapping[Pair, float]:
        """The part of the traffic that each pair should get: its share of the places of prefill or of decode, the
        smaller one. A pair that lacks a phase is not listed, nor is one that only drains in a phase while others serve.
        """
        found = self._shares.get(model)
        if found is None:
            found = self._shares[model] = self._split(model, now, self.expected) or self._split(
                model, now, self.hoped_for
            )
        return found

    def _split(self, model: str, now: float, counts: Callable[[Worker, float], bool]) -> dict[Pair, float]:
        return _smaller(self._places("prefill", model, now, counts), self._places("decode", model, now, counts))

    def _places(self, phase: Phase, model: str, now: float, counts: Callable[[Worker, float], bool]) -> dict[Pair, int]:
        places: dict[Pair, int] = {}
        for worker in self.role(phase, model).values():
            if counts(worker, now):
                places[worker.pair] = places.get(worker.pair, 0) + worker.slots
        return places


def _smaller(prefill: dict[Pair, int], decode: dict[Pair, int]) -> dict[Pair, float]:
    all_prefill, all_decode = sum(prefill.values()), sum(decode.values())
    return {
        pair: min(prefill[pair] / all_prefill, decode[pair] / all_decode) for pair in prefill.keys() & decode.keys()
    }


def _identity(beat: Heartbeat) -> tuple[object, ...]:
    return beat.phase, beat.model, beat.revision, beat.layout, beat.capacity


def _check(beat: Heartbeat) -> None:
    wrong = [
        name
        for name, value in (
            ("capacity.max_running", beat.capacity.max_running),
            ("capacity.max_model_len", beat.capacity.max_model_len),
            ("capacity.kv_blocks", beat.capacity.kv_blocks),
            ("layout.block_size", beat.layout.block_size),
        )
        if value < 1
    ]
    if wrong or not beat.worker_id or not beat.engine_id or not beat.url:
        raise InvalidRequest(
            f"worker {beat.worker_id!r}: {', '.join(wrong) or 'id, engine id or url'} must not be empty"
        )
