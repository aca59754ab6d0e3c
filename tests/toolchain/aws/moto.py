"""moto's server: an AWS of this machine's own, as a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3

from tests.ports import free_ports

START_SECONDS = 60.0
POLL_SECONDS = 0.1
# Policies of AWS's own are there; nothing waits for a transition that nobody makes.
SETTINGS = {"MOTO_IAM_LOAD_MANAGED_POLICIES": "true"}


class Moto:
    """A running server; `url` is the endpoint of every service."""

    def __init__(self, url: str) -> None:
        self.url = url

    def client(self, service: str, region: str, account: str) -> Any:
        """A client of boto3's, in one account."""
        return boto3.client(service, region_name=region, endpoint_url=self.url, **self.credentials(account))

    def credentials(self, account: str) -> dict[str, str]:
        """Those of an administrator: moto knows the account of whoever assumed a role there."""
        sts = boto3.client(
            "sts",
            region_name="us-east-1",
            endpoint_url=self.url,
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        role = f"arn:aws:iam::{account}:role/administrator"
        given = sts.assume_role(RoleArn=role, RoleSessionName="tests")["Credentials"]
        sts.close()
        return {
            "aws_access_key_id": given["AccessKeyId"],
            "aws_secret_access_key": given["SecretAccessKey"],
            "aws_session_token": given["SessionToken"],
        }


@contextmanager
def running() -> Iterator[Moto]:
    """A server for as long as it is needed."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **SETTINGS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Moto(_answering(process, f"http://127.0.0.1:{port}"))
    finally:
        process.terminate()
        process.wait(10)


def _answering(process: subprocess.Popen[bytes], url: str) -> str:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=START_SECONDS):
                return url
        except OSError:
            assert process.poll() is None, f"moto's server ended with status {process.returncode}"
            assert time.monotonic() < deadline, "moto's server does not answer"
            time.sleep(POLL_SECONDS)
