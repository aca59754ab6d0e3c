"""Pulumi's own types of resources and of what functions answer: its SDK's classes, found by token."""

from __future__ import annotations

import collections.abc
import functools
import importlib
import importlib.util
import json
import re
import threading
import typing
from pathlib import Path
from typing import Any

from pulumi import _types

Properties = dict[str, Any]
# The SDK imports its modules as they are needed, in a way that two threads can't share.
IMPORTING = threading.Lock()


@functools.cache
def _modules() -> dict[str, tuple[str, str]]:
    """Token → module and class. The SDK's package says it, and importing all of that would take a minute."""
    found = importlib.util.find_spec("pulumi_aws")
    assert found is not None
    assert found.origin is not None
    listed = re.search(r'resource_modules="""(.*?)"""', Path(found.origin).read_text(), re.DOTALL)
    assert listed is not None
    return {
        token: (module["fqn"], name) for module in json.loads(listed[1]) for token, name in module["classes"].items()
    }


@functools.cache
def resource(token: str) -> Properties:
    """The properties of a resource, inputs and outputs, each with its type."""
    module, name = _modules()[token]
    with IMPORTING:
        return dict(_types.resource_types(getattr(importlib.import_module(module), name)))


@functools.cache
def function(token: str) -> Properties:
    """What a function answers, such as aws:lb/getHostedZoneId:getHostedZoneId."""
    _, module, name = token.split(":")
    package = module.partition("/")[0]
    with IMPORTING:
        inside = importlib.import_module("pulumi_aws" if package == "index" else f"pulumi_aws.{package}")
        return dict(_types.output_type_types(getattr(inside, f"{name[0].upper()}{name[1:]}Result")))


def nested(kind: Any) -> Properties | None:
    """The properties of a nested type; None where it is no type of the SDK's."""
    if isinstance(kind, type) and _types.is_output_type(kind):
        return dict(_types.output_type_types(kind))
    return None


def element(kind: Any) -> tuple[bool, Any]:
    """Whether a type is a list, and of what; else the type itself, without Optional."""
    while typing.get_origin(kind) is typing.Union:
        kind = next(one for one in typing.get_args(kind) if one is not type(None))
    if typing.get_origin(kind) in (collections.abc.Sequence, list):
        return True, typing.get_args(kind)[0]
    return False, kind
