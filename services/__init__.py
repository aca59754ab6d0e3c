"""The programs that run: one package for each role, and what they share in `common`."""
