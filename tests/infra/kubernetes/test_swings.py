"""Prefill scaled through a whole day, by the defaults: it follows and does not swing, where queues alone would."""

from __future__ import annotations

import csv
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.infra.kubernetes.controller import SYNC_SECONDS, Controller
from tests.infra.kubernetes.stacks import SCALED, found, plan

TRACE = Path(__file__).parents[2] / "traces" / "azure_2023_conv_20th.csv"
DAY = 12 * 3600  # seconds: a short one, so that it is soon over
NOON_RATE = 30.0  # requests in a second
WORKER_TOKENS = 12_000.0  # that a worker computes in a second
START_SECONDS = 90  # of a worker
WINDOW = 60
TTFT = 0.3  # what a prompt takes by itself
NAME = "diphase_test_prefill_"


@dataclass
class Day:
    """What happened: workers at each second, how often their number turned, and the longest wait, in seconds."""

    workers: list[int] = field(default_factory=list)
    longest_wait: float = 0.0

    @property
    def turns(self) -> int:
        steps = [
            after - before for before, after in zip(self.workers, self.workers[1:], strict=False) if after != before
        ]
        return sum(one * other < 0 for one, other in itertools.pairwise(steps))

    @property
    def share_of_fixed_fleet(self) -> float:
        return sum(self.workers) / (len(self.workers) * max(self.workers))


def tokens_by_second() -> Iterator[float]:
    """Prompt tokens that arrive: prompts of the trace in their order, Poisson arrivals, a quiet night at both ends."""
    chance = random.Random(3)
    with TRACE.open() as file:
        prompts = [int(row["prompt_tokens"]) for row in csv.DictReader(file)]
    for second in range(DAY):
        wave = 0.1 + 0.9 * math.sin(math.pi * second / DAY) ** 2
        place = second * len(prompts) // DAY
        count = max(0, round(chance.gauss(wave * NOON_RATE, math.sqrt(wave * NOON_RATE))))
        yield sum(prompts[(place + chance.randrange(40)) % len(prompts)] for _ in range(count))


def live(spec: Mapping[str, Any], follows: Callable[[str], bool]) -> Day:
    """A day of a spec's autoscaler that knows of those metrics only which it `follows`."""
    controller, day = Controller(spec), Day()
    replicas, births, waiting = spec["minReplicas"], deque[float](), 0.0
    lately = {name: deque[float](maxlen=WINDOW) for name in ("queued_tokens", "busy", "ttft")}
    for second, tokens in enumerate(tokens_by_second()):
        ready = replicas - sum(at > second for at in births)
        computed = min(waiting + tokens, ready * WORKER_TOKENS)
        waiting += tokens - computed
        wait = TTFT + waiting / (ready * WORKER_TOKENS)
        now = {"queued_tokens": waiting, "busy": computed / WORKER_TOKENS, "ttft": wait}
        for name, value in now.items():
            lately[name].append(value)
        day.workers.append(replicas)
        day.longest_wait = max(day.longest_wait, wait)
        if second % SYNC_SECONDS == 0:
            values = {NAME + name: sum(seen) / len(seen) for name, seen in lately.items() if follows(name)}
            wanted = controller.decide(second, replicas, ready, values)
            births = deque(at for at in births if at > second)
            births.extend([second + START_SECONDS] * (wanted - replicas))
            for _ in range(replicas - wanted):
                if births:
                    births.pop()
            replicas = wanted
    return day


def autoscaler() -> Mapping[str, Any]:
    """The spec of prefill's, by the defaults."""
    made = plan(**{**SCALED, "autoscaling": {"kind": "hpa", "prefill": {"max": 12}}})
    spec: Mapping[str, Any] = found(made, "HorizontalPodAutoscaler", "prefill-worker")["spec"]
    return spec


def test_workers_follow_a_day_and_do_not_swing_where_queues_alone_would() -> None:
    day = live(autoscaler(), lambda _name: True)
    assert max(day.workers) >= 4
    assert day.workers[0] == day.workers[-1] == 1
    assert day.turns < 10
    assert day.share_of_fixed_fleet < 0.6
    assert day.longest_wait < 10
    # What takes the pod away that emptied the queue is found by the same measure.
    swung = live(autoscaler(), lambda name: name == "queued_tokens")
    assert swung.turns > 5 * day.turns
    assert swung.longest_wait > 10
