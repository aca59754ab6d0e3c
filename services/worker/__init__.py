"""A worker of one phase: an engine, the HTTP around it, its heartbeats and its KV leases."""
