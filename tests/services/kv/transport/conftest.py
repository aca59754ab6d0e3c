"""Certificates for those tests whose transport says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.common.certificates import Authority, mount


@pytest.fixture
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    """A worker's folder of certificates; None unless the test is parametrised with it."""
    return mount(tmp_path / "tls", Authority().internal()) if getattr(request, "param", False) else None
