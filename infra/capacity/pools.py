"""What one instance type does as the pool of one phase: seconds, replicas, price, or why it can't."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from infra.capacity.demand import Goals, Traffic
from infra.capacity.roofline import Engine, Group
from infra.capacity.shape import Shape
from infra.hardware import GB, InstanceType


@dataclass(frozen=True)
class Refusal:
    """An instance type that can't be a pool, and why."""

    instance_type: str
    size: int
    why: str


@dataclass(frozen=True)
class Option:
    """A type whose GPUs are divided into replicas of `group.size`. `seconds` are of a prompt, or of a decode step.

    `batch` is how many sequences a decode replica answers at once; 1 for prefill.
    """

    instance_type: InstanceType
    group: Group
    seconds: float
    batch: int = 1

    @property
    def per_instance(self) -> int:
        """Replicas on one instance."""
        return self.instance_type.gpus // self.group.size

    @property
    def network(self) -> float:
        """Bytes/s of one replica, its share of the instance's network."""
        share = self.group.size / self.instance_type.gpus
        return self.instance_type.network_gbps / 8 * GB * self.group.engine.network * share


@dataclass(frozen=True)
class Pool:
    """An option with a number of replicas. `busy` is its load when none of them is lost."""

    option: Option
    replicas: int
    spare: int
    busy: float

    @property
    def instances(self) -> int:
        return math.ceil((self.replicas + self.spare) / self.option.per_instance)

    @property
    def usd_per_hour(self) -> float:
        price = self.option.instance_type.usd_per_hour
        assert price is not None  # an option without a price is refused
        return self.instances * price


def groups(kind: InstanceType, shape: Shape, engine: Engine) -> Iterator[Group]:
    """The ways to divide a type's GPUs: by powers of two that divide the heads."""
    size = 1
    while size <= kind.gpus:
        if shape.heads % size == 0:
            yield Group(kind.gpu, size, shape, engine)
        size *= 2


def prefill(kind: InstanceType, group: Group, traffic: Traffic, goals: Goals) -> Option | Refusal:
    """A type as the pool of prefill."""
    if why := _unfit(kind, group, traffic.prompt_tokens):
        return Refusal(kind.name, group.size, why)
    seconds = group.prefill_seconds(traffic.prompt_tokens)
    if seconds >= goals.ttft_seconds:
        return Refusal(kind.name, group.size, f"a prompt alone takes {seconds:.2f} s of {goals.ttft_seconds:g} s")
    return Option(kind, group, seconds)


def decode(kind: InstanceType, group: Group, traffic: Traffic, goals: Goals) -> Option | Refusal:
    """A type as the pool of decode, with the largest batch that keeps the pace and fits."""
    if why := _unfit(kind, group, traffic.tokens):
        return Refusal(kind.name, group.size, why)
    alone = group.decode_seconds(1, traffic.mean_context)
    if alone > goals.tpot_seconds:
        needed = f"a token takes {alone * 1e3:.0f} ms, {goals.tpot_seconds * 1e3:.0f} are allowed"
        return Refusal(kind.name, group.size, needed)
    batch, above = 1, group.sequences(traffic.tokens) + 1
    while above - batch > 1:
        middle = (batch + above) // 2
        if group.decode_seconds(middle, traffic.mean_context) <= goals.tpot_seconds:
            batch = middle
        else:
            above = middle
    return Option(kind, group, group.decode_seconds(batch, traffic.mean_context), batch)


def _unfit(kind: InstanceType, group: Group, tokens: int) -> str | None:
    if kind.usd_per_hour is None:
        return "it has no on-demand price: give one"
    if kind.gpu.bf16_tflops is None or kind.gpu.memory_tb_s is None:
        return f"FLOPS and bandwidth of {kind.gpu.name} are not verified"
    if group.kv_room < 0:
        room = kind.gpu.memory_gb * group.size * group.engine.memory
        return f"weights need {group.weights / GB:.0f} GB, {group.size} GPUs give {room:.0f}"
    if not group.sequences(tokens):
        need = tokens * group.shape.kv_per_token * group.kv_copies / GB
        return f"{tokens} tokens need {need:.1f} GB of KV, beside the weights {group.kv_room / GB:.1f} are left"
    return None


def prefill_pool(option: Option, traffic: Traffic, goals: Goals, transfer: float, wait: float) -> Pool:
    """The fewest replicas that keep a prompt waiting no longer than `wait` seconds, for a GPU and for the network."""
    rate = traffic.requests_per_second
    slowest = max(option.seconds, transfer)
    replicas = math.ceil(rate * slowest / goals.busy)
    while queues(rate / replicas, option.seconds, transfer, goals) > wait:
        replicas += 1
    return Pool(option, replicas, goals.spare, rate * slowest / replicas)


def decode_pool(option: Option, traffic: Traffic, goals: Goals, transfer: float) -> Pool:
    """The fewest replicas that take in the KV of all prompts and write as many tokens a second as are asked for."""
    rate = traffic.requests_per_second
    load = max(rate * traffic.answer_tokens / (option.batch / option.seconds), rate * transfer)
    replicas = math.ceil(load / goals.busy)
    return Pool(option, replicas, goals.spare, load / replicas)


def queues(rate: float, seconds: float, transfer: float, goals: Goals) -> float:
    """Seconds that a prompt waits for a GPU and then for the network, in the goals' share of cases or more."""
    return queued(rate, seconds, goals.share) + queued(rate, transfer, goals.share)


def queued(rate: float, seconds: float, share: float) -> float:
    """Seconds that `share` of all wait at most before a server that takes `seconds` for each: M/D/1.

    Its tail is taken as exponential, P(W > t) = rho exp(-2 (1 - rho) t / seconds): Kingman's heavy-traffic limit,
    J. F. C. Kingman, "The single server queue in heavy traffic" (1961). Each server is taken with a queue of its own;
    one queue before all of them waits less.
    """
    load = rate * seconds
    if load >= 1:
        return math.inf
    return max(0.0, seconds / (2 * (1 - load)) * math.log(load / (1 - share)))


def priced(kind: InstanceType, prices: dict[str, float]) -> InstanceType:
    """The type with the price that somebody has for it, such as of a capacity block."""
    return replace(kind, usd_per_hour=prices.get(kind.name, kind.usd_per_hour))
