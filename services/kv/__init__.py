"""KV between workers: pool, leases, handles and transports, and the kv service, a directory of handles."""
