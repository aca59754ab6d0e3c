"""Properties as Pulumi's engine sends them: values that are unknown yet, secrets and files among them."""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

from tests.infra.aws.values import UNKNOWN

_MARK, _SECRET = rpc._special_sig_key, rpc._special_secret_sig


def read(properties: struct_pb2.Struct) -> dict[str, Any]:
    """Plain values; a secret is its content."""
    return {name: _read(value) for name, value in properties.fields.items()}


def _read(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return UNKNOWN if value.string_value == rpc.UNKNOWN else value.string_value
    if kind == "number_value":
        return int(value.number_value) if value.number_value.is_integer() else value.number_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_read(one) for one in value.list_value.values]
    if kind == "struct_value":
        fields = value.struct_value.fields
        if _MARK in fields and fields[_MARK].string_value == _SECRET:
            return _read(fields["value"])
        return read(value.struct_value)
    return None


def write(properties: dict[str, Any]) -> struct_pb2.Struct:
    """The opposite of `read`."""
    return struct_pb2.Struct(fields={name: _write(value) for name, value in properties.items()})


def secret(value: Any) -> dict[str, Any]:
    """A value for `write` that the engine keeps encrypted."""
    return {_MARK: _SECRET, "value": value}


def _write(value: Any) -> struct_pb2.Value:
    if value is UNKNOWN:
        return struct_pb2.Value(string_value=rpc.UNKNOWN)
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, (int, float)):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, list):
        return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_write(one) for one in value]))
    return struct_pb2.Value(struct_value=write(value))


def has_unknown(value: Any) -> bool:
    """Whether anything in a value is unknown yet."""
    if isinstance(value, dict):
        return any(map(has_unknown, value.values()))
    return value is UNKNOWN or (isinstance(value, list) and any(map(has_unknown, value)))
