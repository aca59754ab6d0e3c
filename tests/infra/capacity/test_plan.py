"""The cheapest pair, and why not the others."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from infra.capacity import pools
from infra.capacity.demand import Goals, Traffic
from infra.capacity.plan import Impossible, plan
from infra.capacity.shape import Shape
from infra.hardware import INSTANCE_TYPES, instance_type
from tests.infra.capacity import models

TRAFFIC = Traffic(prompt_tokens=1500, answer_tokens=200, requests_per_second=20.0)
SMALL, LARGE = Shape.from_config(models.LLAMA_3_8B), Shape.from_config(models.LLAMA_3_70B)


@pytest.mark.parametrize("shape", [SMALL, LARGE, Shape.from_config(models.DEEPSEEK_V3)])
def test_every_plan_keeps_the_goals_and_the_first_is_the_cheapest(shape: Shape) -> None:
    goals = Goals()
    answer = plan(shape, TRAFFIC, goals)
    assert [one.usd_per_hour for one in answer.plans] == sorted(one.usd_per_hour for one in answer.plans)
    for one in answer.plans:
        assert one.ttft_seconds <= goals.ttft_seconds
        assert one.tpot_seconds <= goals.tpot_seconds
        for pool in (one.prefill, one.decode):
            assert pool.busy <= goals.busy
            assert pool.instances * pool.option.per_instance >= pool.replicas + pool.spare
        batch, room = one.decode.option.batch, one.decode.option.group.sequences(TRAFFIC.tokens)
        assert 1 <= batch <= room


def test_a_decode_replica_takes_the_largest_batch_that_keeps_the_pace() -> None:
    kind = instance_type("p5.4xlarge")
    goals = Goals(tpot_seconds=0.02)
    (group,) = pools.groups(kind, SMALL, plan_engine())
    found = pools.decode(kind, group, TRAFFIC, goals)
    assert isinstance(found, pools.Option)
    assert group.decode_seconds(found.batch, TRAFFIC.mean_context) <= goals.tpot_seconds
    fuller = found.batch + 1
    assert fuller > group.sequences(TRAFFIC.tokens) or group.decode_seconds(fuller, TRAFFIC.mean_context) > 0.02


def plan_engine() -> pools.Engine:
    return pools.Engine()


def test_more_traffic_costs_more_and_harder_goals_too() -> None:
    usual = plan(LARGE, TRAFFIC).best.usd_per_hour
    assert plan(LARGE, replace(TRAFFIC, requests_per_second=200.0)).best.usd_per_hour > 3 * usual
    assert plan(LARGE, TRAFFIC, Goals(ttft_seconds=0.3)).best.usd_per_hour >= usual
    assert plan(LARGE, TRAFFIC, Goals(tpot_seconds=0.015)).best.usd_per_hour > usual
    assert plan(LARGE, TRAFFIC, Goals(spare=0)).best.usd_per_hour <= usual


def test_the_network_is_a_queue_of_its_own() -> None:
    """A prompt's KV takes 0.45 s on 5 Gbit/s: more replicas are needed for it than for the GPUs."""
    kind = [instance_type("g6e.2xlarge")]
    slow = plan(SMALL, TRAFFIC, types=kind).best
    fast = plan(SMALL, TRAFFIC, types=[replace(kind[0], network_gbps=100)]).best
    assert slow.transfer_seconds == pytest.approx(1500 * 131072 / (5e9 / 8 * 0.7), rel=1e-3)
    assert slow.prefill.replicas > fast.prefill.replicas
    assert slow.decode.replicas > fast.decode.replicas


def test_a_wait_is_that_of_a_simulated_queue() -> None:
    """M/D/1 by Lindley's recursion, at loads that are planned for."""
    chance = random.Random(7)
    for load in (0.5, 0.8):
        wait, seen = 0.0, []
        for _ in range(200_000):
            seen.append(wait)
            wait = max(0.0, wait + 1.0 - chance.expovariate(load))
        real = sorted(seen)[int(0.95 * len(seen))]
        assert pools.queued(load, 1.0, 0.95) == pytest.approx(real, rel=0.2)
    assert pools.queued(1.0, 1.0, 0.95) == math.inf
    assert pools.queued(0.01, 1.0, 0.95) == 0


@pytest.mark.parametrize(
    ("shape", "traffic", "goals", "types", "says"),
    [
        (LARGE, TRAFFIC, Goals(), ["g5.12xlarge"], "g5.12xlarge with 4 GPUs: weights need 141 GB, 4 GPUs give 86"),
        (SMALL, TRAFFIC, Goals(), ["p5e.48xlarge"], "it has no on-demand price"),
        (SMALL, TRAFFIC, Goals(), ["p6-b300.48xlarge"], "FLOPS and bandwidth of B300 are not verified"),
        (SMALL, TRAFFIC, Goals(tpot_seconds=0.001), ["p5.48xlarge"], "no instance type can decode this"),
        (SMALL, TRAFFIC, Goals(ttft_seconds=0.01), ["p5.4xlarge"], "a prompt alone takes"),
        (SMALL, Traffic(100_000, 900_000, 1.0), Goals(), ["g6.12xlarge"], "GB of KV, beside the weights"),
        (SMALL, TRAFFIC, Goals(ttft_seconds=0.5), ["g6e.2xlarge"], "without any wait"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    shape: Shape, traffic: Traffic, goals: Goals, types: list[str], says: str
) -> None:
    with pytest.raises(Impossible, match=says):
        plan(shape, traffic, goals, types=[instance_type(name) for name in types])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Traffic(0, 1, 1.0),
        lambda: Traffic(1, 1, 0.0),
        lambda: Goals(ttft_seconds=0),
        lambda: Goals(share=1.0),
        lambda: Goals(spare=-1),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=r"above|more"):
        wrong()


def test_a_price_of_ones_own() -> None:
    kind = pools.priced(INSTANCE_TYPES["p5e.48xlarge"], {"p5e.48xlarge": 40.0})
    assert plan(LARGE, TRAFFIC, types=[kind]).best.usd_per_hour % 40 == 0
