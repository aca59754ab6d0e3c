"""`python -m services.gateway`: run one gateway."""

from __future__ import annotations

import os
import sys

from services.common import logs
from services.common.http_server import run, serve
from services.common.settings import GatewaySettings, SettingsError
from services.gateway.app import Gateway


async def _main(settings: GatewaySettings) -> None:
    try:
        gateway = Gateway(settings)
    except SettingsError as error:
        sys.exit(f"gateway: {error}")
    try:
        await serve(gateway.app, settings)
    finally:
        await gateway.close()


def main() -> None:
    """Read the settings from the environment and serve until SIGTERM."""
    try:
        settings = GatewaySettings.from_environ(os.environ)
    except SettingsError as error:
        sys.exit(f"gateway: {error}")
    logs.configure(settings.instance, settings.log_level)
    run(lambda: _main(settings))


if __name__ == "__main__":
    main()
