"""The `diphase` command and what sets a checkout up for it."""
