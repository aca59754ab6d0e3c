"""What a judge finds: one line of the result, and what to do about it."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "notice", "failed"]


class Finding(msgspec.Struct):
    """One line; a notice does not fail the run."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def shown(text: str) -> str:
    """A text's beginning on one line."""
    line = " ".join(text.split())
    return f"“{line[:60]}{'…' if len(line) > 60 else ''}”"
