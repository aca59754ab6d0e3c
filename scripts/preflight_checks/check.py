"""A check: what it is about, what it reads, how it gathers facts and how it judges them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted


@dataclass(frozen=True)
class Check:
    """`reads` are the permissions that gathering takes; `judge` is pure."""

    name: str
    about: str
    reads: tuple[str, ...]
    gather: Callable[[Cloud, Wanted], Any]
    judge: Callable[[Wanted, Any], Iterator[Finding]]
