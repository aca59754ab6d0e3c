"""Every malformed request is refused with the right status and a message that says what to do; no worker sees one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.services.gateway.malformed import MALFORMED, send
from tests.services.gateway.world import KEY, world


def test_malformed_requests(tmp_path: Path, model_path: Path, scheduler_urls: list[str]) -> None:
    async def main() -> list[str]:
        faults = []
        async with world(tmp_path, model_path, scheduler_urls) as here:
            for case in MALFORMED:
                answer = await asyncio.to_thread(send, "127.0.0.1", here.served.port, case, KEY, here.model)
                fault = case.fault(*answer)
                if fault is not None:
                    faults.append(f"{case.name}: {fault}")
            assert not any(worker.visits for worker in here.workers)
            await here.at_rest()
            assert (await here.post({"messages": [{"role": "user", "content": "Still here?"}]})).status == 200
        return faults

    assert len({case.name for case in MALFORMED}) == len(MALFORMED)
    assert asyncio.run(main()) == []
