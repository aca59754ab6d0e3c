"""What a gRPC server says of itself: the files that describe a service, by grpc.reflection.v1alpha."""

from __future__ import annotations

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool


def reflected(channel: grpc.Channel, symbol: str) -> descriptor_pool.DescriptorPool:
    """The files that describe a symbol of the server."""
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
