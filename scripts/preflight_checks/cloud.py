"""AWS as an `up` of the stack sees it: the shell's credentials, and with them the role that deploys."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

# A call that hangs is given up: 4 tries of 20 s at most.
LIMITS = Config(connect_timeout=5, read_timeout=15, retries={"max_attempts": 4, "mode": "standard"})


class Unusable(Exception):
    """Nothing can be asked; `advice` says what to do."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(found)
        self.advice = advice


class Cloud:
    """Clients of one region, made when first asked for. `own` are the shell's, which read state and take roles on."""

    def __init__(self, session: boto3.Session, region: str, deploy_role: str | None = None) -> None:
        self.session, self.region, self.deploy_role = session, region, deploy_role
        self._deploying: boto3.Session | None = None
        self._clients: dict[tuple[str, bool, str], Any] = {}

    def own(self, service: str) -> Any:
        return self._client(service, True, self.region)

    def client(self, service: str, region: str | None = None) -> Any:
        """A client of the role that deploys; raises Unusable where that cannot be taken on."""
        return self._client(service, False, region or self.region)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _client(self, service: str, own: bool, region: str) -> Any:
        key = (service, own, region)
        if key not in self._clients:
            session: Any = self.session if own else self._taken_on()  # whose types know services by literal names
            self._clients[key] = session.client(service, region_name=region, config=LIMITS)
        return self._clients[key]

    def _taken_on(self) -> boto3.Session:
        if self.deploy_role is None:
            return self.session
        if self._deploying is None:
            self._deploying = self._assume(self.deploy_role)
        return self._deploying

    def _assume(self, role: str) -> boto3.Session:
        try:
            given = self.own("sts").assume_role(RoleArn=role, RoleSessionName="diphase-preflight")["Credentials"]
        except (ClientError, BotoCoreError) as error:
            raise Unusable(
                f"region.deployRole ({role}) can't be taken on: {error}",
                "let its trust policy name who calls this, and allow them sts:AssumeRole of it",
            ) from None
        return boto3.Session(
            given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], region_name=self.region
        )
