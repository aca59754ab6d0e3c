"""`diphase cluster-token`: a token for an EKS cluster, as kubectl and Pulumi ask for it (see infra/aws/kubeconfig.py).

The token is a presigned GetCallerIdentity of STS, which the cluster itself sends to learn who asks; nothing secret is
in it but for the quarter of an hour in which AWS takes it (aws-iam-authenticator, "How does it work?").
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import click
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    LoginError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from scripts.faults import OperationFailed

PREFIX = "k8s-aws-v1."
HEADER = "x-k8s-aws-id"
# EKS takes a signature for 15 minutes, whatever it says of itself; a minute is for clocks that differ (aws-cli, eks
# get-token, has the same figures).
URL_SECONDS, TOKEN_MINUTES = 60, 14
CONFIG = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 3, "mode": "standard"})
# Type stubs lack this argument, which botocore documents.
AWS_ONLY: Config = CONFIG.merge(Config(ignore_configured_endpoint_urls=True))  # type: ignore[call-arg]
SESSION_NAME = "diphase-cluster-token"
LOG_IN = "log in (`aws sso login`, or set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) and run again"


@click.command("cluster-token")
@click.option("--cluster", required=True, help="Name of the EKS cluster.")
@click.option("--region", required=True, help="Region of the cluster.")
@click.option("--role", metavar="ARN", help="IAM role that is taken on first.")
def command(cluster: str, region: str, role: str | None) -> None:
    """Print a token for an EKS cluster, as a kubeconfig's exec plugin does."""
    try:
        token = PREFIX + base64.urlsafe_b64encode(_url(cluster, region, role).encode()).decode().rstrip("=")
    except (NoCredentialsError, PartialCredentialsError):
        raise OperationFailed(f"cluster {cluster}: no AWS credentials are found: {LOG_IN}") from None
    except (SSOError, LoginError, TokenRetrievalError, CredentialRetrievalError, ProfileNotFound) as error:
        raise OperationFailed(f"cluster {cluster}: {error}: {LOG_IN}") from None
    except ClientError as error:
        raise OperationFailed(_refused(cluster, role, error)) from None
    except BotoCoreError as error:
        raise OperationFailed(f"cluster {cluster}: STS in {region} is not reached: {error}") from None
    expiry = datetime.now(UTC) + timedelta(minutes=TOKEN_MINUTES)
    status = {"expirationTimestamp": expiry.strftime("%Y-%m-%dT%H:%M:%SZ"), "token": token}
    click.echo(
        json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})
    )


def _url(cluster: str, region: str, role: str | None) -> str:
    """The presigned request, for this cluster only."""
    session = boto3.Session(region_name=region)
    if role is not None:
        session = _taken_on(session, role)
    # The cluster asks AWS's own address, so it would refuse one that is configured here.
    client = session.client("sts", config=AWS_ONLY)

    def name(request: Any, **_: Any) -> None:
        request.headers[HEADER] = cluster

    client.meta.events.register("before-sign.sts.GetCallerIdentity", name)
    return client.generate_presigned_url("get_caller_identity", ExpiresIn=URL_SECONDS, HttpMethod="GET")


def _taken_on(session: boto3.Session, role: str) -> boto3.Session:
    answer = session.client("sts", config=CONFIG).assume_role(RoleArn=role, RoleSessionName=SESSION_NAME)
    given = answer["Credentials"]
    return boto3.Session(
        given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], region_name=session.region_name
    )


def _refused(cluster: str, role: str | None, error: ClientError) -> str:
    said = error.response["Error"]
    if said["Code"] in ("ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId"):
        return f"cluster {cluster}: the AWS credentials are no longer good ({said['Code']}): {LOG_IN}"
    return (
        f"cluster {cluster}: {role} is not to be had ({said['Code']}: {said['Message']}): let your own role take it on "
        "in its trust policy, or log in as somebody who may"
    )
