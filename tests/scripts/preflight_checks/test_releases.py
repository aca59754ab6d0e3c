"""Versions, images and weights: each finding once."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.aws.capacity import GpuPool, SystemPool
from scripts.preflight_checks import images, look, versions, weights
from scripts.preflight_checks.cloud import Cloud
from scripts.preflight_checks.versions import parameter
from tests.infra.aws.region import IMAGE
from tests.scripts.preflight_checks.asked import ACCOUNT, REGION, judged, recorded, told, wanted
from tests.toolchain.aws.moto import Moto

PINNED = wanted().config.cluster.addons.model_dump(by_alias=True)
OFFERED = {name: ["v9.9.9-eksbuild.1", PINNED[key]] for key, name in versions.ADDONS.items()}
SYSTEM = parameter(SystemPool())
GPU = parameter(wanted().config.capacity.gpu_pools["prefill"])


def facts(**changes: Any) -> versions.Facts:
    values = {"support": "STANDARD_SUPPORT", "standard": ["1.34", "1.35"], "addons": OFFERED, "images": [SYSTEM, GPU]}
    return versions.Facts(**{**values, **changes})


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (facts(), "ok", "EKS 1.35 is in standard support"),
        (facts(support="EXTENDED_SUPPORT"), "fault", "1.35 is extended support → take one in standard support: 1.34"),
        (facts(support=None), "fault", "cluster.version 1.35 is unknown here"),
        (facts(addons={**OFFERED, "coredns": ["v2.0.0-eksbuild.1"]}), "fault", "take one that is: v2.0.0-eksbuild.1"),
        (facts(addons={**OFFERED, "vpc-cni": []}), "fault", "none is offered for this version"),
        (facts(images=[SYSTEM]), "fault", "capacity.decode.amiRelease: there is no image"),
    ],
)
def test_versions_must_be_there(found: versions.Facts, verdict: str, says: str) -> None:
    assert says in told(judged(versions.CHECK, found), verdict)


def test_images_of_nodes_are_where_eks_publishes_them() -> None:
    assert isinstance(wanted().config.capacity.gpu_pools["prefill"], GpuPool)
    name = "amazon-eks-node-al2023-x86_64-nvidia-1.35-v20260818"
    assert f"/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/{name}/image_id" == GPU
    assert "/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.35" in SYSTEM


def test_versions_are_gathered() -> None:
    states = {"1.33": "EXTENDED_SUPPORT", "1.35": "STANDARD_SUPPORT", "1.34": "STANDARD_SUPPORT"}
    listed = [{"clusterVersion": name, "versionStatus": status} for name, status in states.items()]
    addon = [{"addonVersions": [{"addonVersion": "v1.0.0-eksbuild.1"}]}]
    calls = [("describe_cluster_versions", {"clusterVersions": listed})]
    calls += [("describe_addon_versions", {"addons": addon})] * len(versions.ADDONS)
    with recorded({"eks": calls, "ssm": [("get_parameters", {"Parameters": [{"Name": SYSTEM}]})]}) as cloud:
        found = versions.gather(cloud, wanted())
    assert (found.support, found.standard, found.images) == ("STANDARD_SUPPORT", ["1.34", "1.35"], [SYSTEM])
    assert found.addons == {name: ["v1.0.0-eksbuild.1"] for name in versions.ADDONS.values()}


def test_images_must_be_in_their_repositories(cloud: Cloud, server: Moto) -> None:
    ecr = server.client("ecr", REGION, ACCOUNT)
    digest = ""
    for role in ("gateway", "kv"):
        ecr.create_repository(repositoryName=f"diphase/{role}")
    pushed = ecr.put_image(
        repositoryName="diphase/gateway",
        imageManifest='{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}',
        imageTag="1",
    )
    ecr.close()
    digest = pushed["image"]["imageId"]["imageDigest"]
    reference = (IMAGE % "gateway").partition("@")[0] + f"@{digest}"
    elsewhere = f"registry.example.com/worker@sha256:{'0' * 64}"
    what = wanted({"images.digests.gateway": reference, "images.digests.worker": elsewhere}, serving=True)
    found = look(images.CHECK, cloud, what)
    assert told(found, "ok").startswith("gateway is there")
    assert "images.digests.worker is in no registry of ECR" in told(found, "warning")
    assert "images.digests.scheduler is not in its repository" in told(found, "fault"), "a repository that is not"
    assert "images.digests.kv is not in its repository" in told(found, "fault"), "a digest that is not"


def test_a_region_without_images_is_ok() -> None:
    with recorded({}) as cloud:
        for check in (images.CHECK, weights.CHECK):
            assert [one.verdict for one in look(check, cloud, wanted())] == ["ok"]


def test_weights_must_be_whole(cloud: Cloud, server: Moto) -> None:
    what = wanted(serving=True)
    assert "there is no bucket of s3://weights/m" in told(look(weights.CHECK, cloud, what), "fault")
    s3 = server.client("s3", REGION, ACCOUNT)
    s3.create_bucket(Bucket="weights")
    said = told(look(weights.CHECK, cloud, what), "fault")
    assert "lacks config.json, tokenizer.json, *.safetensors" in said
    names = [
        "config.json",
        "tokenizer.json",
        "model-00001-of-00002.safetensors",
        "old/model-00002-of-00002.safetensors",
    ]
    for name in names:
        s3.put_object(Bucket="weights", Key=f"m/{name}", Body=b"x")
    assert "lacks 1 of 2 parts of model" in told(look(weights.CHECK, cloud, what), "fault")
    s3.put_object(Bucket="weights", Key="m/model-00002-of-00002.safetensors", Body=b"x")
    s3.close()
    assert "s3://weights/m: 4 files" in told(look(weights.CHECK, cloud, what), "ok")


def test_weights_from_outside_are_warned_of() -> None:
    what = wanted({"model.source": "meta/llama"}, serving=True)
    assert "copy it to s3://diphase-test-" in told(judged(weights.CHECK, weights.Facts(), what), "warning")
