"""Runs the kv service: `python -m services.kv`, settings from the environment."""

from __future__ import annotations

import os

from services.common import http_server, logs
from services.common.settings import KvSettings, SettingsError
from services.kv.app import KvApp


async def main() -> None:
    """Serve until told to stop."""
    try:
        settings = KvSettings.from_environ(os.environ)
    except SettingsError as error:
        raise SystemExit(f"kv: {error}") from None
    logs.configure(settings.instance, settings.log_level)
    await http_server.serve(KvApp(settings).app, settings)


if __name__ == "__main__":
    http_server.run(main)
