"""The base image of tests: Debian with Python, made by debootstrap, since a machine may reach no public registry."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from pathlib import Path

from scripts.steps import Step, run
from tests.toolchain.docker.daemon import Docker, DockerError
from tests.toolchain.kubernetes import debian

PACKAGES = ("ca-certificates", "python3", "python3-venv", "tini")
SUITE = "bookworm"


def prepare(docker: Docker) -> str:
    """The reference of the base image; made once, and kept by the daemon. Raises DockerError, SetUpError."""
    key = hashlib.sha256(f"{SUITE} {PACKAGES}".encode()).hexdigest()[:10]
    reference = f"diphase-test/base:{SUITE}-{key}"
    if docker("image", "ls", "--quiet", reference):
        return reference
    with Step(f"Debian {SUITE} as a base image (a minute, once)"), tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        bootstrap = [
            "debootstrap",
            "--variant=minbase",
            f"--include={','.join(PACKAGES)}",
            SUITE,
            str(root),
            *_mirror(),
        ]
        run(bootstrap, {"PATH": debian.PATH})
        run(["chroot", str(root), "apt-get", "clean"], {"PATH": debian.PATH})
        with subprocess.Popen(["tar", "--directory", root, "--create", "."], stdout=subprocess.PIPE) as tar:
            docker("import", "--change", 'CMD ["bash"]', "-", reference, stdin=tar.stdout)
        if tar.returncode != 0:
            raise DockerError(f"tar of {root} ended with status {tar.returncode}")
    return reference


def _mirror() -> list[str]:
    """Where this machine has its packages from; debootstrap's own default where it does not say."""
    sources = [*Path("/etc/apt/sources.list.d").glob("*.sources"), *Path("/etc/apt/sources.list.d").glob("*.list")]
    for file in [*sources, Path("/etc/apt/sources.list")]:
        for line in file.read_text().splitlines() if file.is_file() else ():
            words = line.split()
            if words[:1] == ["URIs:"] or words[:1] == ["deb"]:
                addresses = [word for word in words if word.startswith("http") and word.rstrip("/").endswith("/debian")]
                if addresses:
                    return addresses[:1]
    return []
