"""Builds what the cluster is made of from pinned Go modules, once, into the cache."""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts import go_module
from scripts.steps import SetUpError, say
from tests.toolchain.kubernetes import archive

MODULES = Path(__file__).resolve().parent / "modules"
NODE = MODULES / "node"
PROVIDER = MODULES / "provider"
# The SDK that pyproject.toml pins asks its provider for this version.
PROVIDER_VERSION = "4.25.0"
PROVIDER_SOURCE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
# To be raised when what is built from the same modules changes.
RECIPE = 1
# Go names a program after its package; this one's is called server.
RENAMED = {"server": "etcd"}
IMAGES = {"pause": "/pause", "dns": "/dns", "agnhost": "/agnhost"}


@dataclass(frozen=True)
class Toolchain:
    """Programs and images of one set of pins; `bin` may be put on PATH."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    @property
    def kubectl(self) -> Path:
        return self.bin / "kubectl"

    def program(self, name: str) -> str:
        """The path of a program of the node module, such as kubelet."""
        return str(self.bin / name)

    def image(self, name: str) -> Path:
        """A Docker archive: pause, dns, or agnhost, the many-sided container of Kubernetes' own tests."""
        return self.folder / "images" / f"{name}.tar"

    @staticmethod
    def reference(name: str) -> str:
        """What an image of this toolchain is called in the cluster."""
        return f"node.invalid/{name}:1"


def prepare(cache: Path) -> Toolchain:
    """The cluster's programs and images, built where they are missing; raises SetUpError."""
    folder = cache / "toolchain" / f"kubernetes-{fingerprint(NODE)}"

    def build() -> None:
        partial = _empty(folder.with_name(f"{folder.name}.partial"))
        _build_node(partial / "bin", cache)
        (partial / "images").mkdir()
        for name, program in IMAGES.items():
            content = {program: (partial / "bin" / name).read_bytes()}
            archive.write(partial / "images" / f"{name}.tar", Toolchain.reference(name), [program], content)
        partial.rename(folder)

    once(cache, folder, build)
    return Toolchain(folder)


def prepare_provider(cache: Path) -> Path:
    """Pulumi's Kubernetes provider, built if need be, as a plugin of the cache's PULUMI_HOME; raises SetUpError."""
    folder = cache / "pulumi-home" / "plugins" / f"resource-kubernetes-v{PROVIDER_VERSION}"
    program = folder / "pulumi-resource-kubernetes"

    def build() -> None:
        built = _empty(cache / "toolchain" / "provider.partial") / program.name
        _build_provider(built, cache)
        folder.mkdir(parents=True, exist_ok=True)
        built.replace(program)
        built.parent.rmdir()

    once(cache, program, build)
    return program


def once(cache: Path, result: Path, build: Callable[[], None]) -> None:
    """Call `build`, which makes `result` appear all at once, unless it is there; one process of a machine builds."""
    if result.exists():
        return
    (cache / "toolchain").mkdir(parents=True, exist_ok=True)
    with open(cache / "toolchain" / "build.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"    another process is building in {cache / 'toolchain'}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not result.exists():
            build()


def fingerprint(module: Path) -> str:
    """Ten hex digits that change with any file of a module, and with RECIPE."""
    digest = hashlib.sha256(f"{RECIPE}\0".encode())
    for path in sorted(module.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(module)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:10]


def _build_node(out: Path, cache: Path) -> None:
    _require_go("a Kubernetes node for the tests is built from its Go modules")
    out.mkdir()
    version = go_module.pinned(NODE, "k8s.io/kubernetes")
    major, minor, _ = version.split(".")
    stamped = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    go_module.build(
        f"Kubernetes {version} and what a node needs beside it (ten minutes and more, once)",
        NODE,
        ["tool", "./pause", "./dns"],
        out,
        cache,
        stamps=" ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamped.items()),
        total=3500,
    )
    for name, better in RENAMED.items():
        (out / name).rename(out / better)


def _build_provider(out: Path, cache: Path) -> None:
    _require_go("Pulumi's Kubernetes provider is built from its Go module")
    source = go_module.folder(PROVIDER, PROVIDER_SOURCE, cache) / "cmd" / "pulumi-resource-kubernetes"
    # A release embeds these two, generated; the module carries what they are generated from.
    laid_over = {str(PROVIDER / name): str(source / name) for name in ("schema.json", "terraform-mapping.json")}
    overlay = out.parent / "overlay.json"
    overlay.write_text(json.dumps({"Replace": laid_over}))
    go_module.build(
        f"Pulumi's Kubernetes provider {PROVIDER_VERSION} (six minutes, once)",
        PROVIDER,
        ["."],
        out,
        cache,
        stamps=f"-X {PROVIDER_SOURCE}/pkg/version.Version={PROVIDER_VERSION}",
        total=2000,
        more=["-overlay", str(overlay)],
    )
    overlay.unlink()


def _require_go(why: str) -> None:
    if shutil.which("go") is None:
        raise SetUpError(f"{why}, and Go is missing: install Go 1.26 or newer (https://go.dev/doc/install)")


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
