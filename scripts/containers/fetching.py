"""How a build reaches package indexes: this machine's certificates, pip configuration and variables, as build secrets.

A secret is there while a step runs; no layer and no history holds it.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BUNDLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
PIP_FILES = ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf")
PASSED = re.compile(
    r"UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY|INSECURE_HOST|INDEX_\w+_(USERNAME|PASSWORD))"
    r"|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST)"
    r"|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy"
)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that say where packages come from; uv, which does not read pip's, is told of pip's index."""
    found = {name: value for name, value in environ.items() if value and PASSED.fullmatch(name)}
    if "PIP_INDEX_URL" in found and not found.keys() & {"UV_DEFAULT_INDEX", "UV_INDEX_URL"}:
        found["UV_DEFAULT_INDEX"] = found["PIP_INDEX_URL"]
    return dict(sorted(found.items()))


def files(environ: Mapping[str, str]) -> dict[str, Path]:
    """The secrets that are files already: `ca`, a bundle of certificates, and `pip`, its configuration."""
    bundles = [Path(environ[name]) for name in BUNDLES if environ.get(name)]
    configurations = [environ.get("PIP_CONFIG_FILE", ""), *PIP_FILES]
    candidates = {"ca": bundles, "pip": [Path(name).expanduser() for name in configurations if name]}
    found = {name: next((path for path in paths if path.is_file()), None) for name, paths in candidates.items()}
    return {name: path for name, path in found.items() if path is not None}


@contextmanager
def secrets(environ: Mapping[str, str] = os.environ) -> Iterator[list[str]]:
    """Options of `docker build`, good while the context lasts."""
    with tempfile.NamedTemporaryFile("w") as file:  # readable by its owner alone
        file.writelines(f"{name}={shlex.quote(value)}\n" for name, value in variables(environ).items())
        file.flush()
        chosen = {**files(environ), "environ": Path(file.name)}
        yield [part for name, path in chosen.items() for part in ("--secret", f"id={name},src={path}")]
