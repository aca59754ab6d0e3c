"""KEDA's ScaledObjects as a kind of the cluster, without KEDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.conftest import CACHE
from tests.toolchain.kubernetes import judges
from tests.toolchain.kubernetes.cluster import Cluster

NAME = "scaledobjects.keda.sh"


@contextmanager
def defined(cluster: Cluster) -> Iterator[None]:
    """For as long as the block runs, by KEDA's own definition."""
    (file,) = (one for one in judges.definitions(CACHE) if one.name == "keda.sh_scaledobjects.yaml")
    cluster.kubectl("create", "-f", str(file))
    try:
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=60s")
        yield
    finally:
        cluster.kubectl("delete", "crd", NAME)
