"""How a stack speaks to AWS: one region of one account, as the role that deploys; every resource carries its tags."""

from __future__ import annotations

import re

import pulumi_aws as aws

from infra.config import StackConfig

# STS, AssumeRole: what a session's name may hold.
SESSION_LENGTH, NOT_OF_A_SESSION = 64, re.compile(r"[^\w+=,.@-]", re.ASCII)


def tags(config: StackConfig, stack: str) -> dict[str, str]:
    """The tags of every resource of a stack; also for what the provider's default tags don't reach, such as volumes."""
    ours = {"diphase:stack": stack, "diphase:environment": config.region.environment}
    return {**config.region.tags, **ours}


def aws_provider(name: str, config: StackConfig, stack: str) -> aws.Provider:
    """The provider of a stack's resources; it refuses the credentials of any other account than the stack's."""
    region = config.region
    assert region.name is not None, "the configuration of an aws stack has region.name"
    assert region.account is not None, "the configuration of an aws stack has region.account"
    roles = None
    if region.deploy_role:
        session = NOT_OF_A_SESSION.sub("-", f"diphase-{stack}")[:SESSION_LENGTH]
        roles = [aws.ProviderAssumeRoleArgs(role_arn=region.deploy_role, session_name=session)]
    return aws.Provider(
        name,
        region=region.name,
        allowed_account_ids=[region.account],
        assume_roles=roles,
        max_retries=region.max_retries,
        default_tags=aws.ProviderDefaultTagsArgs(tags=tags(config, stack)),
    )
