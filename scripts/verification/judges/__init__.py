"""Small pure judges: facts in, findings out, each with what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scripts.verification.facts import Facts, Objectives
from scripts.verification.finding import Finding
from scripts.verification.judges import answers, handoff, roles

Judge = Callable[[Facts, Objectives], Iterator[Finding]]
JUDGES: tuple[Judge, ...] = (
    roles.roles,
    roles.registrations,
    roles.transport_security,
    roles.models,
    answers.answers,
    answers.streams,
    answers.speed,
    answers.refusals,
    handoff.kv_moved,
    handoff.left_behind,
)


def judge(facts: Facts, objectives: Objectives) -> list[Finding]:
    """Every judge's findings, in order."""
    return [finding for one in JUDGES for finding in one(facts, objectives)]
