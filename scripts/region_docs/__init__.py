"""The picture of a region in docs/region.md: what is declared is drawn, so that it can't be out of date unseen."""
