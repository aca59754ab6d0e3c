"""A day in minutes: arrivals and lengths of a recorded hour, thinned as nights are, sent by the official client."""

from __future__ import annotations

import asyncio
import csv
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import openai

from tests.kubernetes.stack import ClusterStack

TRACE = Path(__file__).parents[1] / "traces" / "azure_2023_conv_20th.csv"
# At night there is so much of what there is at noon.
NIGHT = 0.1
# A small model on a few cores: prompts and answers are shorter by so much.
PROMPTS_SHORTER, ANSWERS_SHORTER = 8, 4
MOST_TOKENS, LEAST_TOKENS = 400, 8
REQUEST_SECONDS = 120.0
SAMPLES = 3
# Token ids that are words, so that no prompt is the same as another.
WORDS = range(1000, 20000)


@dataclass(frozen=True)
class Arrival:
    """One request, `at` seconds after the day's begin."""

    at: float
    prompt_tokens: int
    answer_tokens: int


@dataclass
class Outcome:
    """What became of the day's requests; `lost` tells of those that failed or whose answer was not whole."""

    answered: int = 0
    lost: list[str] = field(default_factory=list)
    seconds_to_first: list[float] = field(default_factory=list)


def day(seconds: float, noon_rate: float) -> list[Arrival]:
    """A day of so many seconds, with about `noon_rate` requests in a second at its middle; always the same."""
    trace = list(_trace())
    chance, span = random.Random(1), trace[-1].at
    speed = len(trace) / seconds
    return [
        Arrival(one.at / span * seconds, one.prompt_tokens, one.answer_tokens)
        for one in trace
        if chance.random() < _wave(one.at / span) * noon_rate / speed
    ]


def _trace() -> Iterator[Arrival]:
    with TRACE.open() as file:
        for row in csv.DictReader(file):
            prompt = int(row["prompt_tokens"]) // PROMPTS_SHORTER
            answer = int(row["answer_tokens"]) // ANSWERS_SHORTER
            yield Arrival(float(row["seconds"]), _bounded(prompt), _bounded(answer))


def _bounded(tokens: int) -> int:
    return min(max(tokens, LEAST_TOKENS), MOST_TOKENS)


def _wave(part: float) -> float:
    """How busy a part of the day is, 0 its begin and 1 its end: quiet, a hill in the middle, quiet."""
    return NIGHT + (1 - NIGHT) * math.sin(math.pi * part) ** 6


def seconds_of_an_answer(stack: ClusterStack) -> float:
    """How long the day's mean request takes when it is alone: the median of a few, after one that warms up."""
    trace = list(_trace())
    mean = Arrival(
        0.0,
        round(statistics.fmean(one.prompt_tokens for one in trace)),
        round(statistics.fmean(one.answer_tokens for one in trace)),
    )
    took = []
    for _ in range(1 + SAMPLES):
        begin = time.monotonic()
        outcome = asyncio.run(live(stack, [mean]))
        took.append(time.monotonic() - begin)
        assert not outcome.lost
    return statistics.median(took[1:])


async def live(stack: ClusterStack, arrivals: Sequence[Arrival]) -> Outcome:
    """Send all of them at their time and read every answer to its end; nothing is tried twice."""
    outcome = Outcome()
    limits = httpx.Limits(max_connections=None, keepalive_expiry=2)
    async with (
        httpx.AsyncClient(verify=stack.tls, trust_env=False, limits=limits) as http,
        openai.AsyncOpenAI(
            base_url=f"{stack.url}/v1", api_key=stack.key, http_client=http, max_retries=0, timeout=REQUEST_SECONDS
        ) as client,
    ):
        words = random.Random(2)
        begin = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for arrival in arrivals:
                prompt = [words.choice(WORDS) for _ in range(arrival.prompt_tokens)]
                group.create_task(_one(client, stack.model.name, arrival, prompt, begin, outcome))
    return outcome


async def _one(
    client: openai.AsyncOpenAI, model: str, arrival: Arrival, prompt: list[int], begin: float, outcome: Outcome
) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(begin + arrival.at - loop.time())
    sent = loop.time()
    first: float | None = None
    finish, usage = None, None
    try:
        stream = await client.completions.create(
            model=model,
            prompt=prompt,
            max_tokens=arrival.answer_tokens,
            stream=True,
            stream_options={"include_usage": True},
            extra_body={"ignore_eos": True},
        )
        async for chunk in stream:
            if first is None and chunk.choices:
                first = loop.time() - sent
            finish = chunk.choices[0].finish_reason if chunk.choices else finish
            usage = chunk.usage or usage
    except openai.OpenAIError as error:
        outcome.lost.append(f"at {arrival.at:.0f} s: {error!r}")
        return
    if finish != "length" or usage is None or usage.completion_tokens != arrival.answer_tokens or first is None:
        outcome.lost.append(f"at {arrival.at:.0f} s: {finish}, {usage} for {arrival.answer_tokens} tokens")
        return
    outcome.answered += 1
    outcome.seconds_to_first.append(first)
