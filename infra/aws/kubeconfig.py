"""How the cluster is reached: its address and certificate, and a command that gives a token for whoever asks."""

from __future__ import annotations

import json

# A state is shared by a team, so it can't hold where a program lies on one machine. `diphase` itself puts its own
# folder first on PATH for what it starts; others are told by the hint.
COMMAND = "diphase"
HINT = (
    "`diphase cluster-token` gives the token for this cluster: put the folder of Diphase's programs on PATH, "
    "such as by `source .venv/bin/activate` in its checkout"
)


def kubeconfig(stack: str, cluster: str, region: str, endpoint: str, authority: str, role: str | None = None) -> str:
    """The content, as JSON. Context, cluster and user have the stack's name; `role` is taken on to ask for a token."""
    arguments = ["cluster-token", "--cluster", cluster, "--region", region, *(["--role", role] if role else [])]
    user = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": COMMAND,
        "args": arguments,
        "interactiveMode": "Never",
        "provideClusterInfo": False,
        "installHint": HINT,
    }
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": stack,
        "clusters": [{"name": stack, "cluster": {"server": endpoint, "certificate-authority-data": authority}}],
        "contexts": [{"name": stack, "context": {"cluster": stack, "user": stack}}],
        "users": [{"name": stack, "user": {"exec": user}}],
    }
    return json.dumps(content)
