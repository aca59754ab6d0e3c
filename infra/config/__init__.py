"""A stack's configuration, typed and frozen.

docs/config.md and docs/config.schema.json are written from these classes (`python -m scripts.config_docs`).
"""

from infra.config.faults import ConfigError
from infra.config.group import NAMESPACE
from infra.config.local import PORT_SPAN
from infra.config.service import MAX_WORKERS
from infra.config.stack import StackConfig

__all__ = ["MAX_WORKERS", "NAMESPACE", "PORT_SPAN", "ConfigError", "StackConfig"]
