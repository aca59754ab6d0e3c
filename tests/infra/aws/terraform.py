"""Terraform's AWS provider as a judge: it says whether a resource's arguments are ones that AWS would take.

Its binary is a go-plugin server (HashiCorp's go-plugin, protocol version 5). It tells its own protocol by gRPC
reflection, so no description of that is kept here.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import grpc
import msgpack
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Of go-plugin's handshake: it keeps people from starting the binary by hand (terraform-plugin-go, tfprotov5/tf5server).
COOKIE = "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2"
SERVICE = "tfplugin5.Provider"
SIZE = [("grpc.max_receive_message_length", 256 << 20), ("grpc.max_send_message_length", 256 << 20)]
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


@dataclass(frozen=True)
class Field:
    """An argument or a block: `type` is string, number, bool, dynamic, a pair of kind and type, or a mapping."""

    type: Any
    required: bool = False
    optional: bool = True
    computed: bool = False
    block: str | None = None
    most: int = 0


Fields = dict[str, Field]
NESTING = {1: "single", 5: "single", 2: "list", 3: "set", 4: "map"}


def fields_of(block: Any) -> Fields:
    """A block of the provider's schema."""
    found = {}
    for one in block.attributes:
        found[one.name] = Field(_type(json.loads(one.type)), one.required, one.optional, one.computed)
    for one in block.block_types:
        kind, inner = NESTING[one.nesting], fields_of(one.block)
        found[one.type_name] = Field(
            inner if kind == "single" else (kind, inner), one.min_items > 0, True, False, kind, one.max_items
        )
    return found


def _type(said: Any) -> Any:
    if isinstance(said, str):
        return said
    if said[0] == "object":
        return {name: Field(_type(inner)) for name, inner in said[1].items()}
    return (said[0], _type(said[1]))


def encode(kind: Any, value: Any, block: str | None = None) -> Any:
    """A value as the provider reads it: every field present, what is absent null, blocks that are absent empty."""
    if isinstance(kind, dict):
        return None if value is None else {n: encode(f.type, value.get(n), f.block) for n, f in kind.items()}
    if value is None:
        return [] if block in ("list", "set") else None
    if kind == "string":
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind == "number":
        return int(value) if float(value).is_integer() else float(value)
    if kind == "bool":
        return {"true": True, "false": False}[str(value).lower()]
    if kind == "dynamic":
        return [b'"string"', str(value)]
    if kind[0] == "map":
        return {name: encode(kind[1], inner) for name, inner in value.items()}
    return [encode(kind[1], inner) for inner in (value if isinstance(value, list) else [value])]


class Provider:
    """The running provider."""

    def __init__(self, binary: Path) -> None:
        environ = {
            "TF_PLUGIN_MAGIC_COOKIE": COOKIE,
            "PLUGIN_PROTOCOL_VERSIONS": "5",
            "PATH": os.environ.get("PATH", ""),
            "AWS_EC2_METADATA_DISABLED": "true",
            "TF_LOG": "OFF",
        }
        self._process = subprocess.Popen(
            [str(binary)], env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._process.stdout is not None
        network, address = self._process.stdout.readline().decode().strip().split("|")[2:4]
        self._channel = grpc.insecure_channel(f"unix:{address}" if network == "unix" else address, options=SIZE)
        self._pool = _reflected(self._channel, SERVICE)

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
        return ask(request(**arguments))

    @cached_property
    def schemas(self) -> Mapping[str, Any]:
        """The blocks of every type of resource."""
        return self.call("GetSchema").resource_schemas

    def fields(self, kind: str) -> Fields:
        """The arguments and blocks of a type of resource, such as aws_s3_bucket."""
        return fields_of(self.schemas[kind].block)

    def faults(self, kind: str, arguments: Mapping[str, Any]) -> Iterator[str]:
        """What the provider has against the arguments of a resource."""
        packed = {"msgpack": msgpack.packb(encode(self.fields(kind), arguments))}
        answer = self.call("ValidateResourceTypeConfig", type_name=kind, config=packed)
        for one in answer.diagnostics:
            if one.severity == ERROR:
                path = ".".join(str(getattr(step, step.WhichOneof("selector"))) for step in one.attribute.steps)
                yield f"{kind}.{path}: {one.summary}: {one.detail}"

    def stop(self) -> None:
        self._channel.close()
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


def _reflected(channel: grpc.Channel, symbol: str) -> descriptor_pool.DescriptorPool:
    """What a server says of itself (grpc.reflection.v1alpha): the files that describe a symbol."""
    # ServerReflectionRequest.file_containing_symbol is field 4, a string.
    request = bytes([4 << 3 | 2, len(symbol)]) + symbol.encode()
    ask = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
    answer = next(iter(ask(iter([request]))))
    pool = descriptor_pool.DescriptorPool()
    files = [descriptor_pb2.FileDescriptorProto.FromString(raw) for raw in _bytes_in(_bytes_in(answer, 4)[0], 1)]
    known = {one.name: one for one in files}

    def add(one: descriptor_pb2.FileDescriptorProto) -> None:
        for name in one.dependency:
            if name in known:
                add(known.pop(name))
            elif name.startswith("google/protobuf/"):
                pool.AddSerializedFile(descriptor_pool.Default().FindFileByName(name).serialized_pb)
        pool.Add(one)

    while known:
        add(known.pop(next(iter(known))))
    return pool


def _bytes_in(message: bytes, field: int) -> list[bytes]:
    """The values of a field of bytes in an encoded message; other fields are passed over."""
    found, at = [], 0
    while at < len(message):
        tag, at = _varint(message, at)
        value, at = _varint(message, at)  # a number, or the length of what follows
        if tag & 7 == 2:
            if tag >> 3 == field:
                found.append(message[at : at + value])
            at += value
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
