"""`diphase capacity`: which GPUs a model and its traffic need in each phase, how many, and what they cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from infra.capacity import pools
from infra.capacity.demand import Goals, Traffic
from infra.capacity.plan import Answer, Impossible, Plan, plan
from infra.capacity.pools import Pool
from infra.capacity.shape import BITS, Shape, UnknownModel
from infra.hardware import GB, INSTANCE_TYPES, PRICES, InstanceType, instance_type, monthly
from scripts.faults import OperationFailed

PIPED_WIDTH = 160  # columns of the table where there is no terminal
POSITIVE = click.IntRange(min=1)
ABOVE_ZERO = click.FloatRange(min=0, min_open=True)


@click.command("capacity")
@click.argument("config", type=click.Path(exists=True, path_type=Path))
@click.option("--prompt-tokens", required=True, type=POSITIVE, help="Of a usual prompt.")
@click.option("--answer-tokens", required=True, type=POSITIVE, help="Of a usual answer.")
@click.option("--requests-per-second", required=True, type=ABOVE_ZERO, help="In the busiest minutes.")
@click.option("--ttft", default=2.0, show_default=True, type=ABOVE_ZERO, help="Seconds to the first token, for 95 %.")
@click.option("--tpot", default=0.05, show_default=True, type=ABOVE_ZERO, help="Seconds for each further token.")
@click.option("--dtype", type=click.Choice(list(BITS)), help="Of the weights, where not the checkpoint's.")
@click.option("--kv-dtype", type=click.Choice(list(BITS)), help="Of the KV cache; 16 bits or more when absent.")
@click.option("--spare", default=1, show_default=True, type=click.IntRange(min=0), help="Replicas that may be lost.")
@click.option("--type", "types", multiple=True, metavar="TYPE[=USD]", help="Only these, at this price an hour.")
@click.option("--shown", default=5, show_default=True, type=POSITIVE, help="Pairs that are shown.")
@click.option("--why", is_flag=True, help="Say of each refused type why.")
@click.option("--json", "as_json", is_flag=True, help="For machines: {plans: […], refused: {…}}.")
def command(
    config: Path,
    prompt_tokens: int,
    answer_tokens: int,
    requests_per_second: float,
    ttft: float,
    tpot: float,
    dtype: str | None,
    kv_dtype: str | None,
    spare: int,
    types: Sequence[str],
    shown: int,
    why: bool,
    as_json: bool,
) -> None:
    """Plan the two pools for a model's CONFIG: its config.json, or the folder that holds it."""
    traffic = Traffic(prompt_tokens, answer_tokens, requests_per_second)
    goals = Goals(ttft_seconds=ttft, tpot_seconds=tpot, spare=spare)
    try:
        shape = Shape.from_config(_read(config), dtype=dtype, kv_dtype=kv_dtype)
        answer = plan(shape, traffic, goals, types=_types(types))
    except (UnknownModel, Impossible) as error:
        raise OperationFailed(str(error)) from None
    if as_json:
        click.echo(json.dumps(_data(answer, traffic, shown)))
    else:
        _show(shape, answer, traffic, shown, why)


def _read(path: Path) -> dict[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise OperationFailed(f"{file} is no model's config.json: {error}") from None
    if not isinstance(found, dict):
        raise OperationFailed(f"{file} is no model's config.json: it is no object")
    return found


def _types(chosen: Sequence[str]) -> list[InstanceType]:
    found = []
    for one in chosen:
        name, equals, price = one.partition("=")
        try:
            kind = instance_type(name)
            usd = float(price) if equals else None
        except ValueError as error:
            raise click.BadParameter(f"{one}: {error}", param_hint="--type") from None
        if usd is not None and not 0 < usd < float("inf"):
            raise click.BadParameter(f"{one}: a price is above 0 USD an hour", param_hint="--type")
        found.append(pools.priced(kind, {name: usd} if usd is not None else {}))
    return found or list(INSTANCE_TYPES.values())


def _show(shape: Shape, answer: Answer, traffic: Traffic, shown: int, why: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
    per_token, per_request = shape.kv_per_token / 1000, shape.kv_per_token * traffic.tokens / GB
    sizes = (
        f"{shape.parameters / 1e9:.2f} G parameters, {shape.active / 1e9:.2f} G at work for a token; "
        f"weights {shape.parameters * shape.weight_bytes / GB:.1f} GB; "
        f"KV {per_token:.1f} kB a token, {per_request:.2f} GB a request"
    )
    console.print(sizes, highlight=False)
    table = Table("prefill", "decode", "TTFT", "transfer", "token", "USD/h", "USD/month", "USD/M tokens", box=None)
    for one in answer.plans[:shown]:
        table.add_row(
            _pool(one.prefill),
            _pool(one.decode),
            f"{one.ttft_seconds:.2f} s",
            f"{one.transfer_seconds * 1e3:.0f} ms",
            f"{one.tpot_seconds * 1e3:.0f} ms",
            f"{one.usd_per_hour:.2f}",
            f"{monthly(one.usd_per_hour):,.0f}",
            f"{one.usd_per_million_tokens(traffic):.2f}",
        )
    console.print(table)
    console.print(f"prices: {PRICES}. Estimates; docs/capacity.md says how good they are.", highlight=False)
    if why:
        console.print(_refusals(answer))


def _refusals(answer: Answer) -> Table:
    table = Table("phase", "type", "GPUs", "why not", box=None)
    for phase, refused in answer.refused.items():
        for one in refused:
            table.add_row(phase, one.instance_type, str(one.size), one.why)
    return table


def _pool(pool: Pool) -> str:
    option = pool.option
    batch = f", {option.batch} at once" if option.batch > 1 else ""
    return (
        f"{pool.instances} × {option.instance_type.name}: {pool.replicas}+{pool.spare} of {option.group.size} "
        f"GPUs{batch}, {pool.busy:.0%} busy"
    )


def _data(answer: Answer, traffic: Traffic, shown: int) -> dict[str, Any]:
    return {
        "plans": [_row(one, traffic) for one in answer.plans[:shown]],
        "refused": {
            phase: [{"instanceType": one.instance_type, "gpus": one.size, "why": one.why} for one in refused]
            for phase, refused in answer.refused.items()
        },
    }


def _row(one: Plan, traffic: Traffic) -> dict[str, Any]:
    phases = {
        phase: {
            "instanceType": pool.option.instance_type.name,
            "instances": pool.instances,
            "tensorParallel": pool.option.group.size,
            "replicas": pool.replicas + pool.spare,
            "batch": pool.option.batch,
            "busy": pool.busy,
            "usdPerHour": pool.usd_per_hour,
        }
        for phase, pool in (("prefill", one.prefill), ("decode", one.decode))
    }
    return {
        **phases,
        "ttftSeconds": one.ttft_seconds,
        "transferSeconds": one.transfer_seconds,
        "tpotSeconds": one.tpot_seconds,
        "usdPerHour": one.usd_per_hour,
        "usdPerMillionTokens": one.usd_per_million_tokens(traffic),
    }
