"""Samples of a role's /metrics that bear on KV, and what changed between two looks at them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.parser import text_string_to_metric_families

START = "process_start_time_seconds"
PREFIXES = ("diphase_kv_", "diphase_local_prefill", START)
WORKERS = "diphase_scheduler_workers"
LEFT_OUT = ("_bucket", "_created")


def samples(exposition: str) -> dict[str, float]:
    """The samples that matter, as `name{label="value",…}` with the labels in order."""
    found = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name.startswith(PREFIXES) and not sample.name.endswith(LEFT_OUT):
                found[key(sample.name, **sample.labels)] = sample.value
    return found


def live_workers(exposition: str) -> dict[str, int]:
    """The live workers of each phase that a scheduler knows."""
    samples = [s for family in text_string_to_metric_families(exposition) for s in family.samples]
    return {s.labels["phase"]: int(s.value) for s in samples if s.name == WORKERS and s.labels.get("state") == "live"}


def key(name: str, **labels: str) -> str:
    """A sample's name with its labels."""
    inside = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
    return f"{name}{{{inside}}}" if inside else name


def total(samples: Mapping[str, float], name: str, **labels: str) -> float:
    """The sum over the samples of a name that carry these labels."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        value
        for sample, value in samples.items()
        if sample.partition("{")[0] == name and all(label in sample for label in wanted)
    )


def growth(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]], name: str, **labels: str
) -> float:
    """By how much a counter grew over all processes; one that restarted began again at zero."""
    grown = 0.0
    for process, now in after.items():
        old = before.get(process, {})
        began = total(old, name, **labels) if old.get(START) == now.get(START) else 0.0
        grown += total(now, name, **labels) - began
    return grown


def restarted(before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]) -> Iterable[str]:
    """The processes that are not the ones they were."""
    return sorted(name for name in before if name in after and before[name].get(START) != after[name].get(START))
