"""Judges of what stands: roles, who knows whom, the certificate, the models."""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from scripts.verification.facts import Facts, Objectives, Role
from scripts.verification.finding import Finding

EXPIRES_SOON_DAYS = 14.0


def roles(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """Each role answers, lives and is ready."""
    for role in facts.roles:
        if role.health.status is None:
            yield Finding(
                role.name,
                "failed",
                f"no answer at {role.url}: {role.health.said}",
                f"see whether it runs (`diphase status --stack {facts.stack}`) and what its log ends with",
            )
        elif role.health.status != 200:
            yield Finding(
                role.name,
                "failed",
                f"not healthy: {_reason(role.health.said)}",
                "its supervisor should restart it; if this stays, its log says why",
            )
        elif role.ready.status != 200:
            yield Finding(
                role.name, "failed", f"not ready: {_reason(role.ready.said)}", "its log says what it waits for"
            )
        else:
            yield Finding(role.name, "ok", f"ready at {role.url}")


def registrations(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """Every scheduler replica knows every worker."""
    workers = {role.name for role in facts.roles if "-worker-" in role.name}
    for role in facts.roles:
        if not role.name.startswith("scheduler"):
            continue
        if role.workers is None and role.live:
            yield _counted(role, role.live, workers)
        elif role.workers is None:
            yield Finding(f"{role.name} knows", "failed", "it does not say which workers it knows", f"see {role.url}")
        else:
            yield _known(role, role.workers, workers)


def _known(role: Role, states: dict[str, str], workers: set[str]) -> Finding:
    lacking = sorted(name for name in workers if states.get(name) != "live")
    if not lacking:
        return Finding(f"{role.name} knows", "ok", f"{len(workers)} workers, all live")
    said = ", ".join(f"{name} ({states.get(name, 'unknown')})" for name in lacking)
    advice = f"see {role.url}/v1/workers, and the worker's /ready for the reason it was refused"
    return Finding(f"{role.name} knows", "failed", f"not live: {said}", advice)


def _counted(role: Role, live: dict[str, int], workers: set[str]) -> Finding:
    """By number: which ones they are, a scheduler only tells other roles."""
    there = Counter(name.partition("-worker-")[0] for name in workers)
    said = ", ".join(
        f"{live.get(phase, 0)} of {number} {phase} workers live" for phase, number in sorted(there.items())
    )
    if all(live.get(phase, 0) == number for phase, number in there.items()):
        return Finding(f"{role.name} knows", "ok", said)
    return Finding(f"{role.name} knows", "failed", said, "each worker's /ready says why it was refused")


def transport_security(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """The certificate, or that there is none."""
    certificate = facts.certificate
    if certificate is None:
        host = urlsplit(facts.gateway).hostname or ""
        if _is_loopback(host):
            yield Finding("TLS", "notice", "plain HTTP on this machine's loopback", "put TLS before it to serve others")
        else:
            yield Finding(
                "TLS", "notice", f"plain HTTP to {host}: keys and texts can be read on the way", "put TLS before it"
            )
    elif certificate.fault:
        yield Finding(
            "TLS",
            "failed",
            f"not to be trusted: {certificate.fault}",
            "renew it, or serve the whole chain for this name",
        )
    else:
        days = certificate.days_left or 0.0
        soon = days < EXPIRES_SOON_DAYS
        yield Finding(
            "TLS",
            "notice" if soon else "ok",
            f"certificate valid for {days:.0f} more days",
            "renew it now; see why it was not renewed by itself" if soon else "",
        )


def models(facts: Facts, _objectives: Objectives) -> Iterator[Finding]:
    """The list of models is not empty."""
    if facts.models:
        yield Finding("models", "ok", ", ".join(facts.models))
    else:
        advice = "check the key and that the gateway is up" if facts.models_said else "give the stack a model"
        yield Finding("models", "failed", facts.models_said or "the list is empty", advice)


def _reason(said: str) -> str:
    try:
        return str(json.loads(said)["reason"])
    except (ValueError, KeyError, TypeError):
        return said


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
