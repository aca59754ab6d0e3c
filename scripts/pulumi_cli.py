"""Finds or installs the Pulumi CLI: one on PATH, else the official release, else built from its pinned Go module.

`pulumi-cli/bin` of the environment is a link to the folder of programs that was chosen; `diphase` looks there. Standard
library only.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from scripts import go_module
from scripts.steps import SetUpError, Step, run, say

MODULE = Path(__file__).resolve().parent / "pulumi_cli"
ROOT = "pulumi-cli"
# The SDK in requirements/dev.txt asks for 3.272; 3.274 is seen to start a policy pack that is a program.
MINIMUM = (3, 274, 0)
# Dynamic resources and the language host's runner: part of every release, kept in the SDK's Go module.
COMPANIONS = ("python/dist/pulumi-resource-pulumi-python", "python/cmd/pulumi-language-python-exec")


def pinned() -> str:
    """The version that go.mod pins, such as 3.274.1."""
    return go_module.pinned(MODULE, "github.com/pulumi/pulumi/pkg/v3")


def version_of(program: Path) -> tuple[int, ...] | None:
    """The version that a CLI reports; None where it does not run or says something else."""
    environ = {**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"}
    try:
        done = subprocess.run(
            [str(program), "version"], env=environ, capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.fullmatch(r"v?(\d+)\.(\d+)\.(\d+).*", done.stdout.strip())
    return tuple(map(int, found.groups())) if done.returncode == 0 and found else None


def complete(folder: Path) -> bool:
    """Whether a folder holds the CLI and what dynamic resources need."""
    return all((folder / name).exists() for name in ("pulumi", "pulumi-resource-pulumi-python"))


def ensure(venv: Path, cache: Path) -> Path:
    """The folder with the CLI, linked from the environment; raises SetUpError where none can be had."""
    home = cache / "pulumi-cli" / pinned()
    link = venv / ROOT / "bin"
    if link.resolve() == (home / "bin").resolve() and complete(link):
        return link
    folder = from_path() or (home / "bin" if complete(home / "bin") else None)
    if folder is None:
        folder = from_release(venv, home) or from_module(home, cache)
    link.parent.mkdir(exist_ok=True)
    partial = link.with_name(f"bin.{os.getpid()}")
    partial.symlink_to(folder)
    partial.replace(link)
    return link


def from_path() -> Path | None:
    """The folder of a CLI on PATH that is new enough and complete."""
    found = shutil.which("pulumi")
    if found is None:
        return None
    folder = Path(found).resolve().parent
    version = version_of(Path(found))
    if version is None or version[0] != MINIMUM[0] or version < MINIMUM:
        shown = _dotted(version) if version else "of unknown version"
        say(f"    the Pulumi CLI at {found} is {shown}; {_dotted(MINIMUM)} or newer is needed, so another is installed")
        return None
    if not complete(folder):
        say(f"    the Pulumi CLI at {found} comes without pulumi-resource-pulumi-python, so another is installed")
        return None
    return folder


def from_release(venv: Path, home: Path) -> Path | None:
    """The official release by Pulumi's own installer; None where it cannot be fetched."""
    code = (
        "import sys; from pulumi.automation import PulumiCommand; from semver import VersionInfo; "
        "PulumiCommand.install(root=sys.argv[1], version=VersionInfo.parse(sys.argv[2]))"
    )
    partial = home.with_name(f"{home.name}.{os.getpid()}")
    try:
        with Step(f"Pulumi CLI {pinned()} by Pulumi's installer (about 150 MB)"):
            run([str(venv / "bin" / "python"), "-c", code, str(partial), pinned()])
            if not complete(partial / "bin"):
                raise SetUpError("the release is not complete")
            partial.rename(home)
    except SetUpError as error:
        shutil.rmtree(partial, ignore_errors=True)
        say(f"    not to be had ({str(error).splitlines()[-1].strip()}): building it instead")
        return None
    return home / "bin"


def from_module(home: Path, cache: Path) -> Path:
    """The CLI built from its Go module, every dependency pinned by go.sum; raises SetUpError."""
    if shutil.which("go") is None:
        raise SetUpError(
            "no Pulumi CLI: there is none on PATH, its installer cannot be reached, and Go, to build it, is missing. "
            f"Install the Pulumi CLI {_dotted(MINIMUM)} or newer (https://www.pulumi.com/docs/install/) or Go 1.26 or "
            "newer (https://go.dev/doc/install), then run again"
        )
    version = pinned()
    partial = home.with_name(f"{home.name}.{os.getpid()}")
    (partial / "bin").mkdir(parents=True)
    go_module.build(
        f"Pulumi CLI {version} from its Go module (three to eight minutes, once)",
        MODULE,
        ["github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"],
        partial / "bin" / "pulumi",
        cache,
        # Without the version stamp the Automation API refuses the CLI.
        stamps=f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version=v{version}",
        total=2000,
    )
    sdk = go_module.folder(MODULE, "github.com/pulumi/pulumi/sdk/v3", cache)
    for companion in COMPANIONS:
        shutil.copyfile(sdk / companion, partial / "bin" / Path(companion).name)
        (partial / "bin" / Path(companion).name).chmod(0o755)
    partial.rename(home)
    return home / "bin"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
