"""What judges manifests: kube-score, built from its Go module, and the schemas of kinds that other projects define."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts import go_module
from tests.toolchain.kubernetes.programs import MODULES, fingerprint, once

LINT = MODULES / "lint"
CRDS = MODULES / "crds"
# Module → the files in it with the CustomResourceDefinitions of what a stack may use.
DEFINITIONS: Mapping[str, Sequence[str]] = {
    "github.com/aws/karpenter-provider-aws": (
        "pkg/apis/crds/karpenter.k8s.aws_ec2nodeclasses.yaml",
        "pkg/apis/crds/karpenter.sh_nodepools.yaml",
    ),
    "github.com/cert-manager/cert-manager": ("deploy/crds/cert-manager.io_certificates.yaml",),
    "github.com/kedacore/keda/v2": ("config/crd/bases/keda.sh_scaledobjects.yaml",),
    "sigs.k8s.io/gateway-api": (
        "config/crd/standard/gateway.networking.k8s.io_backendtlspolicies.yaml",
        "config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
        "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
    ),
}


def linter(cache: Path) -> Path:
    """kube-score, built where it is missing; raises SetUpError."""
    program = cache / "toolchain" / f"lint-{fingerprint(LINT)}" / "kube-score"

    def build() -> None:
        program.parent.mkdir(exist_ok=True)
        version = go_module.pinned(LINT, "github.com/zegl/kube-score")
        out = program.with_suffix(".partial")
        go_module.build(
            f"kube-score {version}, which judges manifests (a minute, once)",
            LINT,
            ["github.com/zegl/kube-score/cmd/kube-score"],
            out,
            cache,
            stamps=f"-X main.version={version}",
            total=420,
        )
        out.replace(program)

    once(cache, program, build)
    return program


def definitions(cache: Path) -> list[Path]:
    """The files with CustomResourceDefinitions, fetched where they are missing; raises SetUpError."""
    return [go_module.folder(CRDS, module, cache) / file for module, files in DEFINITIONS.items() for file in files]
