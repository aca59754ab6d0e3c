"""Terraform's AWS provider as a judge: it says whether a resource's arguments are ones that AWS would take.

Its binary is a go-plugin server (HashiCorp's go-plugin, protocol version 5). It tells its own protocol by gRPC
reflection, so no description of that is kept here.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc
import msgpack
from google.protobuf import message_factory

from tests.infra.aws.reflection import reflected
from tests.infra.aws.values import Fields, encode, fields_of

# Of go-plugin's handshake: it keeps people from starting the binary by hand (terraform-plugin-go, tfprotov5/tf5server).
COOKIE = "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2"
SERVICE = "tfplugin5.Provider"
SIZE = [("grpc.max_receive_message_length", 256 << 20), ("grpc.max_send_message_length", 256 << 20)]
CALL_SECONDS = 900.0  # making something may take as long as AWS does
ERROR = 1  # Diagnostic.Severity
VIRTUAL = frozenset({"proc", "sys", "dev", "run", "tmp"})
NOT_FOUND = "Terraform's AWS provider is not on this machine"


def find_provider(environ: Mapping[str, str]) -> Path | None:
    """The newest binary: in Terraform's plugin cache, or in a folder of plugins where machines keep such; else None."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    inside = f"registry.terraform.io/hashicorp/aws/*/linux_{machine}/terraform-provider-aws*"
    roots = [Path(environ["TF_PLUGIN_CACHE_DIR"])] if environ.get("TF_PLUGIN_CACHE_DIR") else []
    roots += [Path.home() / ".terraform.d" / "plugins", Path("/usr/local/share/terraform/plugins")]
    roots += [Path("/usr/share/terraform/plugins")]
    roots += [folder for top in Path("/").iterdir() if top.name not in VIRTUAL for folder in _folders(top)]
    found = [path for root in roots if root.is_dir() for path in root.glob(inside)]
    return max(found, key=lambda path: [*map(int, path.parents[1].name.split("."))], default=None)


def _folders(top: Path) -> list[Path]:
    try:
        return [path for path in top.iterdir() if (path / "registry.terraform.io").is_dir()]
    except OSError:
        return []


class Provider:
    """The running provider; `environ` is added to the little that it is given of this process's."""

    def __init__(self, binary: Path, environ: Mapping[str, str] | None = None) -> None:
        given = {
            "TF_PLUGIN_MAGIC_COOKIE": COOKIE,
            "PLUGIN_PROTOCOL_VERSIONS": "5",
            "PATH": os.environ.get("PATH", ""),
            "AWS_EC2_METADATA_DISABLED": "true",
            "TF_LOG": "OFF",
            **(environ or {}),
        }
        self._process = subprocess.Popen(
            [str(binary)], env=given, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        network, address = self._process.stdout.readline().decode().strip().split("|")[2:4]
        self._channel = grpc.insecure_channel(f"unix:{address}" if network == "unix" else address, options=SIZE)
        self._pool = reflected(self._channel, SERVICE)
        self._fields: dict[str, Fields] = {}

    def call(self, method: str, **arguments: Any) -> Any:
        """One call of the protocol."""
        described = self._pool.FindServiceByName(SERVICE).methods_by_name[method]
        request = message_factory.GetMessageClass(described.input_type)
        answer = message_factory.GetMessageClass(described.output_type)
        ask = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda r: r.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        return ask(request(**arguments), timeout=CALL_SECONDS)

    @cached_property
    def schema(self) -> Any:
        """Of the provider's own settings, of its types of resources and of data sources."""
        return self.call("GetSchema")

    @property
    def schemas(self) -> Mapping[str, Any]:
        """The blocks of every type of resource."""
        schemas: Mapping[str, Any] = self.schema.resource_schemas
        return schemas

    def fields(self, kind: str) -> Fields:
        """The arguments and blocks of a type of resource, such as aws_s3_bucket."""
        if kind not in self._fields:
            self._fields[kind] = fields_of(self.schemas[kind].block)
        return self._fields[kind]

    def faults(self, kind: str, arguments: Mapping[str, Any]) -> Iterator[str]:
        """What the provider has against the arguments of a resource."""
        packed = {"msgpack": msgpack.packb(encode(self.fields(kind), arguments))}
        answer = self.call("ValidateResourceTypeConfig", type_name=kind, config=packed)
        yield from (f"{kind}.{fault}" for fault in errors(answer))

    def stop(self) -> None:
        self._channel.close()
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def errors(answer: Any) -> Iterator[str]:
    """The errors in an answer, each with the path of what it is about."""
    for one in answer.diagnostics:
        if one.severity == ERROR:
            path = ".".join(str(getattr(step, step.WhichOneof("selector"))) for step in one.attribute.steps)
            yield f"{path}: {one.summary}: {one.detail}"
