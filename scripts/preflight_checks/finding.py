"""What a check finds: one line of the result, and what to do about it."""

from __future__ import annotations

from typing import Literal

import msgspec

Verdict = Literal["ok", "warning", "fault"]


class Finding(msgspec.Struct, frozen=True):
    """One line. A fault is what `up` would fail of, or what would be paid in vain."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""
