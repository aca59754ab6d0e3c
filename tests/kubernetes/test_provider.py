"""Pulumi's Kubernetes provider, as it was built, with the real engine and the cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi import automation

from infra.paths import cache_dir
from scripts import pulumi_cli
from tests.toolchain.kubernetes.cluster import Cluster
from tests.toolchain.kubernetes.programs import prepare_provider


def test_the_provider_makes_changes_and_removes_resources(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    prepare_provider(cache_dir(os.environ))
    text = "first"

    def program() -> None:
        provider = kubernetes.Provider(
            "cluster",
            kubeconfig=cluster.kubeconfig.read_text(),
            context=cluster.context,
            enable_config_map_mutable=True,  # else a change replaces it
        )
        kubernetes.core.v1.ConfigMap(
            "map",
            metadata={"name": "map", "namespace": namespace},
            data={"text": text},
            opts=pulumi.ResourceOptions(provider=provider),
        )

    def seen() -> str:
        return cluster.kubectl(
            "-n", namespace, "get", "configmap", "map", "--ignore-not-found", "-o", "jsonpath={.data}"
        )

    options = automation.LocalWorkspaceOptions(
        pulumi_command=automation.PulumiCommand(root=str(Path(sys.prefix) / pulumi_cli.ROOT)),
        project_settings=automation.ProjectSettings(
            "test", "python", backend=automation.ProjectBackend(f"file://{tmp_path}")
        ),
        env_vars={
            "PULUMI_HOME": str(cache_dir(os.environ) / "pulumi-home"),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        },
    )
    stack = automation.create_stack("test", "test", program, opts=options)
    stack.up()
    assert seen() == '{"text":"first"}'
    text = "second"
    stack.up()
    assert seen() == '{"text":"second"}'
    assert automation.OpType.UPDATE not in stack.preview().change_summary
    stack.destroy()
    assert seen() == ""
