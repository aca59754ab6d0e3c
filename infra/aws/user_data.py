"""What a node reads when it starts: settings for nodeadm, to which EKS adds the cluster's own."""

from __future__ import annotations

import base64
import json
from typing import Any

BOUNDARY = "diphase"
# EKS best practices, "Prefix mode": with prefixes addresses are not what bounds pods, and nodes of fewer than 30 vCPUs
# are to have 110 at most. nodeadm would count addresses of interfaces, one of which custom networking leaves unused.
MOST_PODS = 110


def user_data(*, local_disks: bool) -> str:
    """User data of a launch template without an image of its own, in base64.

    `local_disks` makes one file system (RAID 0) of the instance's own disks, for images, logs and volumes of pods; they
    end with the instance.
    """
    spec: dict[str, Any] = {"kubelet": {"config": {"maxPods": MOST_PODS}}}
    if local_disks:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    node = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    lines = (
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"',
        "",
        f"--{BOUNDARY}",
        "Content-Type: application/node.eks.aws",
        "",
        json.dumps(node, indent=2),  # YAML, as all JSON is
        "",
        f"--{BOUNDARY}--",
        "",
    )
    return base64.b64encode("\n".join(lines).encode()).decode()
