"""The providers that an engine of these tests attaches to, as one server of this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

# The engine asks about as many resources at once as it likes; each call may wait for AWS.
CALLS = 64
SIZE = [("grpc.max_receive_message_length", 256 << 20), ("grpc.max_send_message_length", 256 << 20)]


@contextmanager
def serving(providers: dict[str, Any]) -> Iterator[dict[str, str]]:
    """The environment with which an engine finds the providers, by their packages' names."""
    servers = []
    try:
        ports = {}
        for name, provider in providers.items():
            server = grpc.server(ThreadPoolExecutor(CALLS), options=SIZE)
            provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server)
            ports[name] = server.add_insecure_port("127.0.0.1:0")
            server.start()
            servers.append(server)
        attached = ",".join(f"{name}:{port}" for name, port in ports.items())
        yield {"PULUMI_DEBUG_PROVIDERS": attached, "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"}
    finally:
        for server in servers:
            server.stop(None).wait()
