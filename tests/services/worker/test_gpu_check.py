"""The GPU check as an init container runs it, with a program in nvidia-smi's place on PATH."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

H100 = "NVIDIA H100 80GB HBM3, 570.86.15, Enabled"
A10G = "NVIDIA A10G, 535.183.01, Disabled"


def smi(folder: Path, output: str, status: int = 0) -> None:
    """Put a program on PATH that answers as nvidia-smi does, if it is asked as it must be."""
    program = folder / "nvidia-smi"
    (folder / "said").write_text(output)
    program.write_text(
        "#!/bin/sh\n"
        '[ "$*" = "--query-gpu=name,driver_version,ecc.mode.current --format=csv,noheader" ] || exit 99\n'
        f"cat {folder / 'said'}\nexit {status}\n"
    )
    program.chmod(0o755)


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.worker.gpu_check", *arguments]
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3])}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_what_is_as_expected_passes(tmp_path: Path) -> None:
    smi(tmp_path, f"{H100}\n" * 8)
    done = check(tmp_path, "--count=8", "--product=nvidia h100 80gb hbm3", "--driver=570.86", "--ecc=on")
    assert (done.returncode, done.stderr) == (0, "")
    assert "8 GPUs as expected (8 NVIDIA H100 80GB HBM3)" in done.stdout


@pytest.mark.parametrize(
    ("output", "status", "arguments", "says"),
    [
        (f"{H100}\n" * 7, 0, [], "7 GPUs are visible, 8 are expected (7 NVIDIA H100 80GB HBM3)"),
        ("", 0, [], "0 GPUs are visible, 8 are expected"),
        (f"{H100}\n" * 7 + A10G, 0, ["--product=NVIDIA H100 80GB HBM3"], "a GPU is a NVIDIA A10G"),
        (f"{A10G}\n" * 8, 0, ["--driver=550.54"], "the driver is 535.183.01, 550.54 or newer is expected"),
        (f"{A10G}\n" * 8, 0, ["--ecc=on"], "ECC of a NVIDIA A10G is off, on is expected"),
        ("Some Card, 600.1, [N/A]\n" * 8, 0, ["--ecc=on"], "ECC of a Some Card is not to be had"),
        ("No devices were found\n", 6, [], "nvidia-smi ended with status 6: No devices were found"),
        ("something else\n", 0, [], "nvidia-smi said 'something else'"),
    ],
)
def test_what_differs_is_one_sentence(
    tmp_path: Path, output: str, status: int, arguments: list[str], says: str
) -> None:
    smi(tmp_path, output, status)
    done = check(tmp_path, "--count=8", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("GPU check: ")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_nvidia_smi_it_says_what_the_node_lacks(tmp_path: Path) -> None:
    done = check(tmp_path, "--count=1")
    assert done.returncode == 1
    assert "lacks the NVIDIA container toolkit" in done.stderr
