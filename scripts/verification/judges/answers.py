"""Judges of what a client gets: texts, streams, speed, refusals."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.verification.facts import Answer, Facts, Objectives
from scripts.verification.finding import Finding, shown

SPEED_TOKENS = 16  # an answer of fewer says nothing about speed
AT_ONCE_SECONDS = 0.001  # a stream whose first and last text are nearer than that was not streamed
BROKEN = "\ufffd"


def answers(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """Each prompt is answered, streamed and whole, with the same text."""
    for name in dict.fromkeys(answer.prompt for answer in facts.answers):
        both = [answer for answer in facts.answers if answer.prompt == name]
        faults = [f"{'streamed' if a.streamed else 'whole'}: {found}" for a in both if (found := fault(a))]
        if faults:
            yield Finding(
                f"{name} prompt", "failed", "; ".join(faults), "the gateway's log has the request, by its X-Request-Id"
            )
            continue
        texts = {answer.text for answer in both}
        if len(texts) > 1:
            yield Finding(
                f"{name} prompt",
                "failed",
                "at temperature 0 the streamed text is another than the whole one: " + " ≠ ".join(map(repr, texts)),
                "try again without other load, which may change rounding; if it stays, the stream loses text",
            )
            continue
        one = both[0]
        yield Finding(
            f"{name} prompt", "ok", f"{one.prompt_tokens} tokens in, {one.completion_tokens} out, {shown(one.text)}"
        )


def streams(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """The text comes as it is written, not in one piece at the end."""
    streamed = [a for a in facts.answers if a.streamed and not fault(a) and a.completion_tokens >= SPEED_TOKENS]
    if not streamed:
        return
    lumps = [a.prompt for a in streamed if (a.last_at or 0.0) - (a.first_at or 0.0) < AT_ONCE_SECONDS]
    if lumps:
        yield Finding(
            "streaming",
            "failed",
            f"the whole text came at once: {', '.join(lumps)}",
            "something between client and gateway buffers: switch its buffering off for text/event-stream",
        )
    else:
        yield Finding("streaming", "ok", "text arrives while it is written")


def speed(facts: Facts, objectives: Objectives) -> Iterator[Finding]:
    """Time to first token and tokens per second, against the objectives."""
    for answer in facts.answers:
        if answer.streamed and not fault(answer) and answer.first_at is not None:
            yield _first_token(answer, answer.first_at, objectives)
    rates = [rate for answer in facts.answers if (rate := decode_rate(answer)) is not None]
    if not rates:
        if facts.answers:
            yield Finding("decode", "notice", "no streamed answer was long enough to measure", "")
        return
    rate, want = max(rates), objectives.decode_tokens_per_second
    yield Finding(
        "decode",
        "ok" if rate >= want else "failed",
        f"{rate:.1f} tokens/s (objective {want:g})",
        "" if rate >= want else "see whether decode workers are full or short of cores; more of them share the load",
    )


def _first_token(answer: Answer, seconds: float, objectives: Objectives) -> Finding:
    late = seconds > objectives.ttft_seconds
    long = answer.prompt_tokens > objectives.ttft_tokens
    return Finding(
        f"TTFT, {answer.prompt}",
        "ok" if not late else "notice" if long else "failed",
        f"{seconds * 1e3:.0f} ms for {answer.prompt_tokens} tokens (objective {objectives.ttft_seconds:g} s"
        + (f" up to {objectives.ttft_tokens} tokens)" if long else ")"),
        "see whether requests queue at prefill; more prefill workers or threads shorten it" if late else "",
    )


def refusals(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """What is wrong is refused in the right way."""
    for refusal in facts.refusals:
        right = refusal.status == refusal.want and bool(refusal.said)
        got = "no answer" if refusal.status is None else str(refusal.status)
        yield Finding(
            f"refuses {refusal.request}",
            "ok" if right else "failed",
            f"{got}, {refusal.said}" if refusal.said else got,
            "" if right else f"it should be {refusal.want} with an error object: is this the right gateway?",
        )


def decode_rate(answer: Answer) -> float | None:
    """Tokens per second after the first, of a streamed answer that is long enough."""
    if not answer.streamed or fault(answer) or answer.completion_tokens < SPEED_TOKENS:
        return None
    if answer.first_at is None or answer.last_at is None or answer.last_at <= answer.first_at:
        return None
    return (answer.completion_tokens - 1) / (answer.last_at - answer.first_at)


def fault(answer: Answer) -> str | None:
    """What is wrong with one answer by itself."""
    if answer.status != 200:
        return f"{answer.status or 'no answer'}: {answer.error}"
    if answer.error:
        return answer.error
    if not answer.ended:
        return "the stream broke off before its end"
    if answer.finish_reason not in ("stop", "length"):
        return f"finish_reason is {answer.finish_reason!r}"
    if not answer.text:
        return "the text is empty"
    cut = answer.finish_reason == "length"  # which may be in the middle of a character
    if BROKEN in (answer.text.rstrip(BROKEN) if cut else answer.text):
        return f"a character was broken: {shown(answer.text)}"
    if not 0 < answer.completion_tokens <= answer.max_tokens or not answer.prompt_tokens:
        return f"usage is wrong: {answer.completion_tokens} of at most {answer.max_tokens} tokens"
    if cut and answer.completion_tokens != answer.max_tokens:
        return f"it was cut after {answer.completion_tokens} of {answer.max_tokens} tokens"
    return None
