"""`python -m services.gateway`: run one gateway."""

from __future__ import annotations

from services.common import role
from services.common.settings import GatewaySettings
from services.gateway.app import Gateway


async def _main(settings: GatewaySettings) -> None:
    gateway = Gateway(settings)
    try:
        await role.serve(gateway.app, settings)
    finally:
        await gateway.close()


if __name__ == "__main__":
    role.run("gateway", GatewaySettings, _main)
