"""The group of monitoring: where metrics go, who is told, what a month may cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from infra.config.group import Group

# What CloudWatch Logs takes (API reference, PutRetentionPolicy); 0, for ever, is left out on purpose.
Retention = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]
RETENTIONS: tuple[int, ...] = get_args(Retention)


def _email(text: str) -> str:
    name, at, domain = text.partition("@")
    if not (name and at and "." in domain) or " " in text:
        raise ValueError(f"{text!r} is no address such as oncall@example.com")
    return text


Email = Annotated[str, AfterValidator(_email)]


class Budget(Group):
    """What a month may cost. AWS tells the alarm's addresses; it switches nothing off."""

    usd: float = Field(gt=0, description="US dollars a month, for everything with the stack's tags")
    actual_percent: list[int] = Field([50, 80, 100], min_length=1, description="shares of it that are told when spent")
    forecast_percent: int = Field(100, ge=1, le=1000, description="share of it that is told when it is foreseen")

    @model_validator(mode="after")
    def _shares(self) -> Budget:
        if any(not 1 <= share <= 1000 for share in self.actual_percent):
            raise ValueError(f"actualPercent is {self.actual_percent}; shares lie between 1 and 1000")
        # A budget has ten notifications at most (AWS Billing API, CreateNotification); the forecast is one of them.
        if len(set(self.actual_percent)) < len(self.actual_percent) or len(self.actual_percent) > 9:
            raise ValueError(f"actualPercent is {self.actual_percent}; up to nine shares, each once")
        return self


class Monitoring(Group):
    """Of the aws target. Metrics in Prometheus, alarms of the account in CloudWatch, logs that end."""

    kind: Literal["managed", "cluster", "none"] = Field(
        "cluster", description="Amazon's Prometheus and Grafana, kube-prometheus-stack, or what somebody else runs"
    )
    metric_days: int = Field(15, ge=1, le=1095, description="how long metrics are kept, of kind cluster")
    metric_gib: int = Field(100, ge=10, le=16384, description="volume of Prometheus, of kind cluster, GiB")
    grafana_admins: list[str] = Field([], description="users of IAM Identity Center that administer, of kind managed")
    emails: list[Email] = Field([], description="who is told of alarms")
    log_days: Retention = Field(90, description="how long logs are kept, of every log group of the stack")
    certificate_days: int = Field(21, ge=1, le=45, description="days of life left at which a certificate is told")
    quota_percent: int = Field(80, ge=1, le=99, description="share of a vCPU quota in use that is told")
    budget: Budget | None = Field(None, description="no budget when absent")

    @model_validator(mode="after")
    def _consistent(self) -> Monitoring:
        faults = list(self._faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.grafana_admins and self.kind != "managed":
            yield f"grafanaAdmins is for kind managed, not {self.kind}: leave it out"
        if self.budget and not self.emails:
            yield "budget needs emails: who is told of it"
