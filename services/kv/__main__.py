"""Runs the kv service: `python -m services.kv`, settings from the environment."""

from __future__ import annotations

from services.common import role
from services.common.settings import KvSettings
from services.common.tls import Certificates
from services.kv.app import KvApp


async def _main(settings: KvSettings) -> None:
    await role.serve(KvApp(settings).app, settings, tls=Certificates.of("internal", settings.tls_folder))


if __name__ == "__main__":
    role.run("kv", KvSettings, _main)
