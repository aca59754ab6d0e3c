"""`python -m services.gateway`: run one gateway."""

from __future__ import annotations

from services.common import role
from services.common.settings import GatewaySettings
from services.common.tls import Certificates
from services.gateway.app import Gateway


async def _main(settings: GatewaySettings) -> None:
    gateway = Gateway(settings, Certificates.of("internal", settings.tls_folder))
    try:
        await role.serve(gateway.app, settings, tls=Certificates.of("edge", settings.gateway_tls_folder))
    finally:
        await gateway.close()


if __name__ == "__main__":
    role.run("gateway", GatewaySettings, _main)
