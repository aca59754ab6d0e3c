"""What can be known of a region before it is made: each check gathers facts, judges them apart, and says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from scripts.preflight_checks import (
    addresses,
    buckets,
    certificates,
    domain,
    identity,
    images,
    offerings,
    permissions,
    quotas,
    reservations,
    session,
    state,
    versions,
    weights,
)
from scripts.preflight_checks.check import Check
from scripts.preflight_checks.cloud import Cloud, Unusable
from scripts.preflight_checks.finding import Finding
from scripts.preflight_checks.wanted import Wanted

# In the order in which an `up` meets them. Whose account it is comes first: of another, the rest would say nothing.
CHECKS: tuple[Check, ...] = (
    identity.CHECK,
    session.CHECK,
    state.CHECK,
    permissions.CHECK,
    quotas.CHECK,
    offerings.CHECK,
    reservations.CHECK,
    addresses.CHECK,
    versions.CHECK,
    domain.CHECK,
    certificates.CHECK,
    images.CHECK,
    weights.CHECK,
    buckets.CHECK,
)
DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403")


def run(
    cloud: Cloud,
    wanted: Wanted,
    checks: Iterable[Check] = CHECKS,
    tell: Callable[[str], None] = lambda what: None,
) -> list[Finding]:
    """Every check's findings; of a wrong account, those on the account alone."""
    found: list[Finding] = []
    for check in checks:
        tell(check.name)
        findings = look(check, cloud, wanted)
        found += findings
        if check is identity.CHECK and any(one.verdict == "fault" for one in findings):
            break
    return found


def look(check: Check, cloud: Cloud, wanted: Wanted) -> list[Finding]:
    """One check's findings; one that cannot be made is a finding, too."""
    try:
        return list(check.judge(wanted, check.gather(cloud, wanted)))
    except Unusable as error:
        return [Finding(check.name, "fault", str(error), error.advice)]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in DENIED:
            allow = f"allow {', '.join(check.reads)}, and it is looked at"
            return [Finding(check.name, "warning", f"these credentials may not look: {error.operation_name}", allow)]
        return [Finding(check.name, "fault", f"AWS refused: {_line(error)}", "see what it says, and call this again")]
    except (BotoCoreError, ResponseParserError) as error:
        return [Finding(check.name, "fault", f"no answer of AWS's: {_line(error)}", "see what is between here and AWS")]


def _line(error: Exception) -> str:
    """An error's first line: what stands between here and AWS may answer with a page."""
    return str(error).partition("\n")[0]
