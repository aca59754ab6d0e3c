"""The scheduler: who serves a request in each of its two phases."""
