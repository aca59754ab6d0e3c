"""The end of the stack that the tests of this folder share; by its name, the last file."""

from __future__ import annotations

from tests.kubernetes.stack import NAMESPACE, ClusterStack


def test_down_leaves_nothing(running: ClusterStack) -> None:
    running.diphase("down")
    for kind in ("namespaces", "persistentvolumes", "priorityclasses"):
        assert NAMESPACE not in running.cluster.kubectl("get", kind, "--output=name")
    assert list((running.release.folder / ".diphase" / "kubernetes").iterdir()) == []
    assert "no changes" in running.try_("down").stderr
