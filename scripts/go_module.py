"""Builds programs from a pinned Go module: Go's environment, and one `go build` that a person can follow.

Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from scripts.steps import SetUpError, Step, run


def environ(cache: Path) -> dict[str, str]:
    """Go's environment: its caches in ours unless the user has set them; no C compiler is needed."""
    result = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    result.setdefault("GOMODCACHE", str(cache / "go" / "mod"))
    result.setdefault("GOCACHE", str(cache / "go" / "build"))
    return result


def pinned(module: Path, dependency: str) -> str:
    """The version of `dependency` that `module`/go.mod requires, without its v; raises SetUpError where it has none."""
    found = re.search(rf"^\s*(?:require )?{re.escape(dependency)} v(\S+)", (module / "go.mod").read_text(), re.M)
    if found is None:
        raise SetUpError(f"{module / 'go.mod'} does not pin {dependency}")
    return found.group(1)


def folder(module: Path, dependency: str, cache: Path) -> Path:
    """Where the source of a dependency lies; fetches it if it has to."""
    lines: list[str] = []
    run(["go", "mod", "download", dependency], environ(cache), cwd=str(module))
    run(["go", "list", "-m", "-f", "{{.Dir}}", dependency], environ(cache), cwd=str(module), on_line=lines.append)
    return Path(lines[-1])


def build(
    what: str,
    module: Path,
    packages: Sequence[str],
    out: Path,
    cache: Path,
    *,
    stamps: str,
    total: int,
    more: Sequence[str] = (),
) -> None:
    """Build packages of a module into `out` (a program, or a folder that exists); raises SetUpError.

    `stamps` are the linker's -X flags, `total` is about how many packages there are, for the progress shown, and `more`
    are further flags of `go build`.
    """
    counts = {"compiled": 0, "fetched": 0}

    def count(line: str) -> None:
        counts["fetched" if line.startswith("go: downloading") else "compiled"] += 1

    def note() -> str:
        return f"({counts['fetched']} modules fetched, {counts['compiled']} of about {total:,} packages compiled)"

    with Step(f"{what}; cached in {cache}", note):
        flags = ["-v", "-trimpath", "-ldflags", f"-s -w {stamps}", *more, "-o", str(out)]
        run(["go", "build", *flags, *packages], environ(cache), cwd=str(module), on_line=count)
