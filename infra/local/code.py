"""What a role's program consists of, as a digest: a release with other code restarts the roles that it changes."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from services.common import settings

SERVICES = Path(settings.__file__).parents[1]
# Every role has the first; workers and the kv service have the second too.
COMMON, KV = "common", "kv"
SOURCES = (".py", ".c")


@functools.cache
def digest(package: str) -> str:
    """Sixteen hexadecimal digits for the source files of a role and of what it may import."""
    content = hashlib.sha256()
    for part in sorted({COMMON, KV, package}):
        for path in sorted(path for path in (SERVICES / part).rglob("*") if path.suffix in SOURCES):
            content.update(str(path.relative_to(SERVICES)).encode())
            content.update(path.read_bytes())
    return content.hexdigest()[:16]
