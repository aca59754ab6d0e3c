"""Judges of the KV handoff, from the workers' own counters."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.verification import counters
from scripts.verification.facts import Facts, Objectives
from scripts.verification.finding import Finding
from scripts.verification.judges.answers import fault

TRANSFERS, BYTES = "diphase_kv_transfers_total", "diphase_kv_transfer_bytes_total"
WAYS = ("shm", "tcp")


def kv_moved(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """The workers' own counters prove that KV went from prefill to decode, and that nothing is left behind."""
    before, after = facts.before, facts.after
    expected = sum(not fault(answer) and answer.completion_tokens > 1 for answer in facts.answers)
    if not expected:
        return
    unread = sorted({role.name for role in facts.roles if "-worker-" in role.name} - (before.keys() & after.keys()))
    if unread:
        yield Finding("KV handoff", "failed", f"no counters of {', '.join(unread)}", "see the roles above")
        return
    moved = counters.growth(before, after, TRANSFERS, outcome="ok")
    bad = counters.growth(before, after, TRANSFERS) - moved
    pulled = counters.growth(before, after, BYTES, direction="pull")
    served = counters.growth(before, after, BYTES, direction="serve")
    local = counters.growth(before, after, "diphase_local_prefill_total")
    ways = [way for way in WAYS if counters.growth(before, after, TRANSFERS, transport=way)]
    said = f"{moved:.0f} transfers over {' and '.join(ways) or 'nothing'}, {pulled / 2**20:.1f} MiB"
    said += f", {bad:.0f} failed" * (bad > 0) + f", {local:.0f} prompts computed at decode" * (local > 0)
    if not (moved and pulled and served):
        advice = "decode computes prompts itself, the KV path is broken: the decode workers' logs name the error"
        yield Finding("KV handoff", "failed", said, advice)
    elif bad or moved + local < expected:
        advice = "the decode workers' logs name the errors"
        yield Finding("KV handoff", "failed", f"{said}, for {expected} answers", advice)
    else:
        yield Finding("KV handoff", "ok", said)


def left_behind(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """No worker restarted, and every lease was given back."""
    if not facts.after:
        return
    again = list(counters.restarted(facts.before, facts.after))
    if again:
        advice = "the end of their earlier logs says why"
        yield Finding("restarts", "failed", f"restarted during the run: {', '.join(again)}", advice)
    open_ = sum(counters.total(samples, "diphase_kv_leases_open") for samples in facts.after.values())
    expired = counters.growth(facts.before, facts.after, "diphase_kv_leases_total", outcome="expired")
    if open_ or expired:
        advice = "other clients' requests, or a gateway that went away: if it grows while nobody asks, it is a leak"
        yield Finding("leases", "notice", f"{open_:.0f} open after the run, {expired:.0f} expired", advice)
    else:
        yield Finding("leases", "ok", "all given back")
