"""Which policy packs judge a stack: ours judges regions of AWS, for its rules are about them."""

from __future__ import annotations

from pathlib import Path

import yaml

import infra.policy
from infra.config import NAMESPACE

PACK = Path(infra.policy.__file__).parent / "pack"


def packs(config_file: Path) -> list[str]:
    """Programs that Pulumi's engine asks; none for a file that cannot be read, which others tell."""
    try:
        config = yaml.safe_load(config_file.read_text(encoding="utf-8"))["config"]
        region = config[f"{NAMESPACE}:target"] == "aws"
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError):
        return []
    return [str(PACK)] if region else []
