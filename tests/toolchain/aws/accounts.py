"""Providers that are configured for an account's region; a few processes serve any number of them in turn."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.infra.aws import mapping
from tests.infra.aws.terraform import Provider
from tests.toolchain.aws.core import Core
from tests.toolchain.aws.moto import Moto

# A process takes 0.7 GB. A stack may need two at the same time: its region's, and that of what is global.
MOST = 2
WAIT_SECONDS = 900.0
ENVIRON = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}


class Accounts:
    """Gives configured providers; `settings` are those of Pulumi's provider."""

    def __init__(self, binary: Path, moto: Moto) -> None:
        self._binary, self._moto = binary, moto
        self._free = threading.Condition()
        self._cores: dict[str, Core] = {}
        self._users: dict[str, int] = {}
        self.any = self._new()

    def stop(self) -> None:
        for core in {id(core): core for core in [self.any, *self._cores.values()]}.values():
            core.provider.stop()

    def wanted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings as Terraform has them; raises mapping.Unmapped for what is none."""
        return mapping.arguments("provider", self.any.settings, settings)

    @contextmanager
    def using(self, settings: Mapping[str, Any]) -> Iterator[Core]:
        """A provider with these settings, which nobody changes meanwhile."""
        key = json.dumps(settings, sort_keys=True)
        with self._free:
            core = self._core(key, settings)
            self._users[key] = self._users.get(key, 0) + 1
        try:
            yield core
        finally:
            with self._free:
                self._users[key] -= 1
                self._cores[key] = self._cores.pop(key)  # the last used is the last in the order
                self._free.notify_all()

    def _core(self, key: str, settings: Mapping[str, Any]) -> Core:
        if key in self._cores:
            return self._cores[key]
        if not self._free.wait_for(lambda: key in self._cores or self._has_room, WAIT_SECONDS):
            raise TimeoutError(f"{MOST} providers are all in use for {WAIT_SECONDS:.0f} s")
        if key not in self._cores:
            core = self._spare()
            core.configure(self._ours(settings))
            self._cores[key] = core
        return self._cores[key]

    @property
    def _has_room(self) -> bool:
        return len(self._cores) < MOST or not all(self._users.get(key) for key in self._cores)

    def _spare(self) -> Core:
        """A provider to configure: the first, another, or the one that was used longest ago, no longer its old self."""
        if not self._cores:
            return self.any
        if len(self._cores) < MOST:
            return self._new()
        return self._cores.pop(next(key for key in self._cores if not self._users.get(key)))

    def _new(self) -> Core:
        provider = Provider(self._binary, ENVIRON)
        if hasattr(self, "any"):
            provider.schema = self.any.provider.schema
        return Core(provider)

    def _ours(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """What the settings come to on moto: its endpoints, and credentials of the account that is asked for."""
        found = self.wanted(settings)
        account = next(iter(found.get("allowed_account_ids") or ()), "123456789012")
        credentials = self._moto.credentials(account)
        services = self.any.settings["endpoints"].type[1]
        return {
            "region": "us-east-1",
            **found,
            "access_key": credentials["aws_access_key_id"],
            "secret_key": credentials["aws_secret_access_key"],
            "token": credentials["aws_session_token"],
            "skip_credentials_validation": True,
            "skip_metadata_api_check": "true",
            "s3_use_path_style": True,
            "max_retries": 1,
            "endpoints": [dict.fromkeys(services, self._moto.url)],
        }
