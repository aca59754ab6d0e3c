"""The layout of a local stack: ports that never meet, settings that reach the roles that use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config import MAX_WORKERS, PORT_SPAN, StackConfig
from infra.local.roles import Layout, PreparedModel
from infra.paths import StackPaths
from services.common.settings import RoleSettings

MODEL = PreparedModel(Path("/models/m"), "m", "main")
PATHS = StackPaths(Path("/project/.diphase/s"), Path("/run/s"))


def layout(**groups: Any) -> Layout:
    return Layout(StackConfig.parse({"target": "local", **groups}), PATHS)


def instances(made: Layout) -> list[RoleSettings]:
    config = made.config
    return [
        made.gateway(MODEL),
        made.kv(),
        *(made.scheduler(i) for i in range(config.scheduler.replicas)),
        *(made.worker("prefill", i, MODEL) for i in range(config.prefill.replicas)),
        *(made.worker("decode", i, MODEL) for i in range(config.decode.replicas)),
    ]


@given(
    schedulers=st.integers(2, 9),
    prefill=st.integers(1, MAX_WORKERS),
    decode=st.integers(1, MAX_WORKERS),
    base=st.integers(1, 65535 - PORT_SPAN),
)
def test_no_two_instances_share_a_port_or_a_name(schedulers: int, prefill: int, decode: int, base: int) -> None:
    made = instances(
        layout(
            scheduler={"replicas": schedulers},
            prefill={"replicas": prefill},
            decode={"replicas": decode},
            local={"basePort": base},
        )
    )
    assert len({role.port for role in made}) == len({role.instance for role in made}) == len(made)
    assert all(base <= role.port < base + PORT_SPAN for role in made)


@pytest.mark.parametrize(
    ("group", "key", "value", "roles"),
    [
        ("prefill", "maxBatchTokens", 512, {"prefill-worker-0"}),
        ("decode", "maxTokens", 99, {"decode-worker-0", "gateway-0"}),
        ("decode", "idleWaitMs", 5.0, {"decode-worker-0"}),
        ("scheduler", "maxQueue", 7, {"scheduler-0", "scheduler-1"}),
        ("kv", "ttlSeconds", 90.0, {"kv-0", "prefill-worker-0", "decode-worker-0"}),
        ("kv", "leaseSeconds", 9.0, {"prefill-worker-0", "decode-worker-0"}),
        ("kv", "transport", "tcp", {"prefill-worker-0", "decode-worker-0"}),
        ("engine", "maxRunning", 4, {"prefill-worker-0", "decode-worker-0"}),
        ("gateway", "requestTimeoutSeconds", 9.0, {"gateway-0"}),
        ("model", "dtype", "bfloat16", {"prefill-worker-0", "decode-worker-0"}),
    ],
)
def test_a_parameter_reaches_the_roles_that_use_it_and_no_other(
    group: str, key: str, value: object, roles: set[str]
) -> None:
    before = {role.instance: role.to_environ() for role in instances(layout())}
    after = {role.instance: role.to_environ() for role in instances(layout(**{group: {key: value}}))}
    assert {name for name in before if before[name] != after[name]} == roles


def test_every_role_reads_back_what_it_is_given() -> None:
    for role in instances(layout()):
        assert type(role).from_environ(role.to_environ()) == role


def test_every_role_ends_with_its_supervisor() -> None:
    assert all(role.exit_with_parent for role in instances(layout()))


def test_only_the_gateway_listens_where_the_configuration_says() -> None:
    made = instances(layout(gateway={"host": "0.0.0.0", "port": 9000}))
    assert (made[0].host, made[0].port) == ("0.0.0.0", 9000)
    assert {role.host for role in made[1:]} == {"127.0.0.1"}


def test_the_model_has_the_name_that_the_configuration_gives_it() -> None:
    assert layout(model={"name": "ours"}).gateway(MODEL).model_name == "ours"
    assert layout().gateway(MODEL).model_name == "m"
