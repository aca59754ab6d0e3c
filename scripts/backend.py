"""`diphase backend`: where the state of a region's stacks lies, and how that place is made."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import boto3
import click
from botocore.exceptions import BotoCoreError, ClientError

from infra.paths import PathError, project_dir
from scripts.faults import OperationFailed
from scripts.options import stack_option
from scripts.state.address import ALIAS, KMS, VARIABLE, Bucket, StackFile, backend
from scripts.state.bootstrap import Home
from scripts.state.locks import LIMITS


@click.group("backend")
def command() -> None:
    """Where the state of a region's stacks lies."""


@command.command("init")
@stack_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def init(stack: str, yes: bool) -> None:
    """Make the bucket of a stack's state and the key that encrypts it, with the secrets in it.

    All stacks of the account in that region share both. What is there already is kept; only what is missing is made.
    """
    url, file, bucket = _wanted(stack)
    assert file.region is not None
    assert file.account is not None
    session = boto3.Session(region_name=file.region)
    try:
        _same_account(session, file.account)
        home = Home(bucket.name, file.region, file.account, session)
        try:
            _make(home, yes)
        finally:
            home.close()
    except (ClientError, BotoCoreError) as error:
        raise OperationFailed(
            f"AWS refused: {error}. What was done is kept: mend that and call it again, and only the rest is done"
        ) from None
    click.echo(
        f"the state of stack {stack} lies in s3://{bucket.name}; `diphase` finds it by the stack's file.", err=True
    )
    click.echo("For `pulumi` itself:", err=True)
    click.echo(f"export {VARIABLE}='{url}'")


def _wanted(stack: str) -> tuple[str, StackFile, Bucket]:
    """The backend's URL, what the stack's file says, the bucket; raises OperationFailed where they do not agree."""
    try:
        path = project_dir(os.environ, Path.cwd()) / "stacks" / f"Pulumi.{stack}.yaml"
    except PathError as error:
        raise OperationFailed(str(error)) from None
    if not path.exists():
        raise OperationFailed(f"there is no stack {stack}: {path} does not exist")
    file = StackFile.read(path)
    if not (file.region and file.account):
        raise OperationFailed(
            f"stack {stack} is in no region: {path} needs diphase:target aws, and name and account of diphase:region"
        )
    provider = f"{KMS}{ALIAS}?region={file.region}"
    if file.secrets != provider:
        raise OperationFailed(
            f"{path} has secretsprovider {file.secrets}; set it to {provider}, the key that is made here"
        )
    url = backend(path, os.environ)
    bucket = Bucket.of(url or "")
    if url is None or bucket is None:
        raise OperationFailed(f"{VARIABLE} is {url}, no bucket of S3: unset it, and the region's own is made")
    if bucket.region not in (None, file.region):
        raise OperationFailed(
            f"{VARIABLE} is {url}, but stack {stack} is in {file.region}: take a bucket there, or unset it"
        )
    return url, file, bucket


def _same_account(session: boto3.Session, account: str) -> None:
    client = session.client("sts", config=LIMITS)
    try:
        found = client.get_caller_identity()["Account"]
    finally:
        client.close()
    if found != account:
        raise OperationFailed(
            f"these credentials are of account {found}, and the stack is of {account}: choose others (AWS_PROFILE), or "
            "mend region.account"
        )


def _make(home: Home, yes: bool) -> None:
    steps = list(home.steps())
    if not steps:
        click.echo(f"s3://{home.bucket} and {ALIAS} are as they should be", err=True)
        return
    click.echo(f"in account {home.account}, {home.region}:", err=True)
    for step in steps:
        click.echo(f"  {step.what}", err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise OperationFailed("there is no terminal to ask on: add --yes")
        if not click.confirm("Do that?", err=True):
            raise OperationFailed("nothing was changed")
    for step in steps:
        step.do()
        click.echo(f"done: {step.what}", err=True)
