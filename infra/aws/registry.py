"""Where a region's images lie: a repository for each role, and caches of public registries for what charts run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws import ecr

from infra.aws.permissions.statement import Place
from infra.config.aws.registry import Registry as RegistryConfig

IMAGES = ("gateway", "scheduler", "worker", "kv")
# Name of an upstream → its address; none of them asks for credentials (Amazon ECR User Guide, "Creating a pull through
# cache rule").
UPSTREAMS: Mapping[str, str] = {"ecr": "public.ecr.aws", "kubernetes": "registry.k8s.io", "quay": "quay.io"}
CACHE = "cache"
CACHED_DAYS = 90


@dataclass(frozen=True)
class RegistryArgs:
    """`key` is the ARN of the key that images are encrypted with; `prefix` begins the repositories' names."""

    config: RegistryConfig
    place: Place
    prefix: str
    key: pulumi.Input[str]
    protect: bool


class Registry(pulumi.ComponentResource):
    """`urls` by image; `caches` by upstream: `quay.io/x/y` is `caches["quay"]/x/y`."""

    urls: Mapping[str, pulumi.Output[str]]
    caches: Mapping[str, pulumi.Output[str]]

    def __init__(self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Registry", name, None, opts)
        self._name, self._args, self._child = name, args, pulumi.ResourceOptions(parent=self)
        self.urls = {image: self._repository(image).repository_url for image in IMAGES}
        self.caches = {}
        if args.config.account_settings:
            self._scanning()
            if args.config.replicate_to:
                self._replication()
            self.caches = self._pull_through()
        self.register_outputs({"urls": self.urls, "caches": self.caches})

    def _repository(self, image: str) -> ecr.Repository:
        args, name = self._args, f"{self._name}-{image}"
        repository = ecr.Repository(
            name,
            name=f"{args.prefix}/{image}",
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[
                ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=args.key)
            ],
            force_delete=not args.protect,
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        policy = lifecycle(args.config.keep_images, args.config.untagged_days)
        ecr.LifecyclePolicy(name, repository=repository.name, policy=policy, opts=self._child)
        return repository

    def _scanning(self) -> None:
        every = ecr.RegistryScanningConfigurationRuleRepositoryFilterArgs(filter="*", filter_type="WILDCARD")
        rule = ecr.RegistryScanningConfigurationRuleArgs(scan_frequency="SCAN_ON_PUSH", repository_filters=[every])
        ecr.RegistryScanningConfiguration(self._name, scan_type="BASIC", rules=[rule], opts=self._child)

    def _replication(self) -> None:
        """What is pushed here is copied; the copies' own settings come from the stack of that region."""
        places = [
            ecr.ReplicationConfigurationReplicationConfigurationRuleDestinationArgs(
                region=region, registry_id=self._args.place.account
            )
            for region in self._args.config.replicate_to
        ]
        ours = ecr.ReplicationConfigurationReplicationConfigurationRuleRepositoryFilterArgs(
            filter=f"{self._args.prefix}/", filter_type="PREFIX_MATCH"
        )
        rule = ecr.ReplicationConfigurationReplicationConfigurationRuleArgs(
            destinations=places, repository_filters=[ours]
        )
        configuration = ecr.ReplicationConfigurationReplicationConfigurationArgs(rules=[rule])
        ecr.ReplicationConfiguration(self._name, replication_configuration=configuration, opts=self._child)

    def _pull_through(self) -> Mapping[str, pulumi.Output[str]]:
        place = self._args.place
        host = pulumi.Output.concat(place.account, ".dkr.ecr.", place.region, ".amazonaws.com")
        found: dict[str, pulumi.Output[str]] = {}
        for upstream in self._args.config.pull_through:
            prefix = f"{CACHE}/{upstream}"
            # Repositories are made at the first pull: by this template, or with Amazon's defaults.
            template = ecr.RepositoryCreationTemplate(
                f"{self._name}-{upstream}",
                prefix=prefix,
                description=f"images of {UPSTREAMS[upstream]}",
                applied_fors=["PULL_THROUGH_CACHE"],
                # A tag of somebody else's may move, and the cache follows.
                image_tag_mutability="MUTABLE",
                lifecycle_policy=lifecycle(None, CACHED_DAYS),
                opts=self._child,
            )
            after = pulumi.ResourceOptions(parent=self, depends_on=[template])
            ecr.PullThroughCacheRule(
                f"{self._name}-{upstream}",
                ecr_repository_prefix=prefix,
                upstream_registry_url=UPSTREAMS[upstream],
                opts=after,
            )
            found[upstream] = pulumi.Output.concat(host, "/", prefix)
        return found


def lifecycle(keep: int | None, untagged_days: int) -> str:
    """ECR's lifecycle policy: untagged images end by age, tagged ones by number, the oldest first (all when None)."""
    rules: list[dict[str, Any]] = [
        {
            "rulePriority": 1,
            "description": f"without a tag for {untagged_days} days",
            "selection": {
                "tagStatus": "untagged",
                "countType": "sinceImagePushed",
                "countUnit": "days",
                "countNumber": untagged_days,
            },
            "action": {"type": "expire"},
        }
    ]
    if keep is not None:
        rules.append(
            {
                "rulePriority": 2,
                "description": f"all but the newest {keep}",
                "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": keep},
                "action": {"type": "expire"},
            }
        )
    return json.dumps({"rules": rules}, separators=(",", ":"))
