"""Writes docs/region.md of the production stack in us-east-1: `python -m scripts.region_docs`."""

from __future__ import annotations

from scripts.region_docs.page import DOCS, page

if __name__ == "__main__":
    (DOCS / "region.md").write_text(page(), encoding="utf-8")
