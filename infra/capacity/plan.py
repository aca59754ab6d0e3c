"""The cheapest pair of pools that serves a model's traffic within its objectives, and why not the others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from infra.capacity import pools
from infra.capacity.demand import Goals, Traffic
from infra.capacity.pools import Option, Pool, Refusal
from infra.capacity.roofline import Engine, Group
from infra.capacity.shape import Shape
from infra.hardware import INSTANCE_TYPES, InstanceType

USUAL, GOOD = Goals(), Engine()
Judge = Callable[[InstanceType, Group, Traffic, Goals], Option | Refusal]


class Impossible(ValueError):
    """No pair serves it; the message says what each type lacks."""


@dataclass(frozen=True)
class Plan:
    """Two pools. `ttft_seconds` holds for the goals' share of requests, `tpot_seconds` is a full batch's."""

    prefill: Pool
    decode: Pool
    transfer_seconds: float
    ttft_seconds: float
    tpot_seconds: float

    @property
    def usd_per_hour(self) -> float:
        return self.prefill.usd_per_hour + self.decode.usd_per_hour

    def usd_per_million_tokens(self, traffic: Traffic) -> float:
        """Of answers, at the planned traffic."""
        return self.usd_per_hour / (traffic.requests_per_second * traffic.answer_tokens * 3600) * 1e6


@dataclass(frozen=True)
class Answer:
    """Plans for each pair of types, cheapest first, and what was refused in each phase."""

    plans: list[Plan]
    refused: Mapping[str, list[Refusal]]

    @property
    def best(self) -> Plan:
        return self.plans[0]


def plan(
    shape: Shape,
    traffic: Traffic,
    goals: Goals = USUAL,
    *,
    types: Iterable[InstanceType] = tuple(INSTANCE_TYPES.values()),
    engine: Engine = GOOD,
) -> Answer:
    """Every pair of types that does it, the cheapest first; raises Impossible."""
    types = list(types)
    prefills, not_prefill = _options(types, pools.prefill, shape, traffic, goals, engine)
    decodes, not_decode = _options(types, pools.decode, shape, traffic, goals, engine)
    refused = {"prefill": not_prefill, "decode": not_decode}
    best: dict[tuple[str, str], Plan] = {}
    for one, other in itertools.product(prefills, decodes):
        pair = _pair(one, other, traffic, goals)
        if isinstance(pair, Refusal):
            refused["prefill"].append(pair)
            continue
        key = (one.instance_type.name, other.instance_type.name)
        if key not in best or _order(pair) < _order(best[key]):
            best[key] = pair
    if not best:
        raise Impossible(_why(prefills, decodes, refused))
    return Answer(sorted(best.values(), key=_order), refused)


def _options(
    types: Iterable[InstanceType], judge: Judge, shape: Shape, traffic: Traffic, goals: Goals, engine: Engine
) -> tuple[list[Option], list[Refusal]]:
    """What each type, divided in each way, is as the pool of a phase."""
    found = [judge(kind, group, traffic, goals) for kind in types for group in pools.groups(kind, shape, engine)]
    options = [one for one in found if isinstance(one, Option)]
    return options, [one for one in found if isinstance(one, Refusal)]


def _order(plan: Plan) -> tuple[float, float]:
    return plan.usd_per_hour, plan.ttft_seconds


def _pair(one: Option, other: Option, traffic: Traffic, goals: Goals) -> Plan | Refusal:
    """The two pools; what a prompt may wait is what prefill, transfer and the first step leave of the TTFT."""
    transfer = traffic.prompt_tokens * one.group.shape.kv_per_token / min(one.network, other.network)
    fixed = one.seconds + transfer + other.seconds
    wait = goals.ttft_seconds - fixed
    if wait <= 0:
        why = f"with {other.instance_type.name} prefill, transfer and a step take {fixed:.2f} s without any wait"
        return Refusal(one.instance_type.name, one.group.size, why)
    first = pools.prefill_pool(one, traffic, goals, transfer, wait)
    second = pools.decode_pool(other, traffic, goals, transfer)
    waited = pools.queues(traffic.requests_per_second / first.replicas, one.seconds, transfer, goals)
    return Plan(first, second, transfer, fixed + waited, other.seconds)


def _why(prefills: list[Option], decodes: list[Option], refused: Mapping[str, list[Refusal]]) -> str:
    short = [phase for phase, fit in (("prefill", prefills), ("decode", decodes)) if not fit] or ["prefill"]
    return "; ".join(f"no instance type can {phase} this: {_reasons(refused[phase])}" for phase in short)


def _reasons(refused: list[Refusal]) -> str:
    nearest = {one.instance_type: one for one in refused}  # the last, and largest, group of each type
    return "; ".join(f"{one.instance_type} with {one.size} GPUs: {one.why}" for one in nearest.values())
