"""The images run: locked down as in a cluster, healthy by their own check, and answer as a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.images.containers import KEY, MODEL, NAMES, Service
from tests.toolchain.docker.daemon import Docker


@pytest.fixture(scope="module")
def service(
    docker: Docker, built: dict[str, str], model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """All roles, healthy."""
    yield Service(docker, built, model_path, tmp_path_factory.mktemp("keys"))
    docker.remove_containers()


@pytest.mark.parametrize("name", NAMES)
def test_answers_health(service: Service, name: str) -> None:
    assert httpx.get(f"{service.url(name)}/health", trust_env=False).status_code == 200
    assert service.healthy(name)


@pytest.mark.parametrize("name", NAMES)
def test_has_no_privileges(service: Service, name: str) -> None:
    assert service.inside(name, "id", "--user") == "10001"
    status = dict(line.split(":", 1) for line in service.inside(name, "cat", "/proc/1/status").splitlines())
    assert status["Name"].strip() == "tini"
    assert status["Uid"].split() == ["10001"] * 4
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"


@pytest.mark.parametrize("name", NAMES)
def test_writes_only_what_is_mounted(service: Service, name: str) -> None:
    places = {"/": False, "/srv/diphase": False, "/opt/diphase": False, "/etc/diphase": False}
    places |= {"/cache": True, "/tmp": True}
    script = 'for place in "$@"; do touch "$place/new" 2> /dev/null && echo "$place"; done; true'
    written = service.inside(name, "sh", "-c", script, "sh", *places).split()
    assert written == [place for place, may in places.items() if may]


@pytest.mark.parametrize("name", NAMES)
def test_has_nothing_to_install_or_compile_with(service: Service, name: str) -> None:
    script = 'for program in "$@"; do command -v "$program"; done; true'
    assert service.inside(name, "sh", "-c", script, "sh", "pip", "pip3", "uv", "gcc", "cc", "ld", "make") == ""
    find = "from importlib.util import find_spec; print([n for n in ('pip', 'ensurepip') if find_spec(n)])"
    assert service.inside(name, "python", "-c", find) == "[]"


def test_nothing_is_compiled_when_it_is_imported(service: Service) -> None:
    code = "import importlib.util as u; print(u.cache_from_source(u.find_spec('services.gateway.app').origin))"
    assert service.inside("gateway-0", "test", "-f", service.inside("gateway-0", "python", "-c", code)) == ""


def test_a_worker_computes_with_what_the_image_carries(service: Service) -> None:
    mapped = service.inside("decode-worker-0", "sh", "-c", "cat /proc/[0-9]*/maps")
    assert "native/built/" in mapped
    assert "native_code_unavailable" not in service.docker.logs("decode-worker-0")


def test_the_service_answers(service: Service) -> None:
    response = httpx.post(
        f"{service.url('gateway-0')}/v1/chat/completions",
        headers={"Authorization": f"Bearer {KEY}"},
        json={
            "model": MODEL,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 16,
            "temperature": 0,
        },
        timeout=60,
        trust_env=False,
    )
    assert response.status_code == 200, response.text
    assert "Paris" in response.json()["choices"][0]["message"]["content"]


def test_ends_when_it_is_told_to(service: Service) -> None:
    """SIGTERM goes through tini to the role, which drains and ends well. The last test: the service is over."""
    service.docker("stop", "--time", "30", *NAMES)
    assert {name: service.state(name)["ExitCode"] for name in NAMES} == dict.fromkeys(NAMES, 0)
