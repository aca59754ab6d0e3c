"""Pulumi's AWS types and names as Terraform's provider has them, and back.

Pulumi's SDK for AWS is generated from that provider: types and properties are renamed by rule (camelCase, plurals for
lists, single blocks flattened), with a few exceptions, which are listed here.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from tests.infra.aws.values import UNKNOWN, Field, Fields

MODULES = {"lb": "lb", "amp": "prometheus", "fsx": "fsx"}
TYPES = {
    "aws:lb/loadBalancer:LoadBalancer": "aws_lb",
    "aws:ec2/securityGroupRule:SecurityGroupRule": "aws_security_group_rule",
}
# Properties whose names no rule gives: (type, Pulumi's name) → Terraform's.
PROPERTIES = {
    ("aws_cloudwatch_metric_alarm", "name"): "alarm_name",
    ("aws_cloudwatch_dashboard", "dashboardName"): "dashboard_name",
}
# Arguments that the provider found on machines (5.100) is too old for → the documentation that says they exist.
NEWER = {
    ("aws_eks_cluster", "deletionProtection"): "Amazon EKS User Guide, Protect EKS clusters from accidental deletion; "
    "Terraform AWS provider 6, aws_eks_cluster, deletion_protection",
    ("aws_eks_node_group", "updateConfig.updateStrategy"): "Amazon EKS API Reference, NodegroupUpdateConfig; "
    "Terraform AWS provider 6, aws_eks_node_group, update_config.update_strategy",
}
AUTOMATIC = frozenset({"name", "replication_group_id"})
IDS = {"LustreFileSystem": "fs", "LaunchTemplate": "lt"}


class Unmapped(Exception):
    """Something has no counterpart; the message names it."""


def snake(name: str) -> str:
    """maxItems → max_items."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def camel(name: str) -> str:
    """max_items → maxItems."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def terraform_type(token: str, known: Mapping[str, Any]) -> str:
    """aws:s3/bucketVersioning:BucketVersioning → aws_s3_bucket_versioning; raises Unmapped."""
    if token in TYPES:
        return TYPES[token]
    _, module, name = token.split(":")
    module = module.partition("/")[0]
    flat = {one.replace("_", ""): one for one in known}
    for prefix in (MODULES.get(module, module), ""):
        found = flat.get(f"aws{prefix}{name}".lower())
        if found:
            return found
    raise Unmapped(f"{token}: the provider has no such type")


def arguments(kind: str, fields: Fields, inputs: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """A resource's inputs as Terraform's arguments; raises Unmapped for one that the provider does not have."""
    found: dict[str, Any] = {}
    for name, value in inputs.items():
        if value is None:
            continue
        key = argument(kind, fields, name, top=not path)
        if key is None and (kind, f"{path}{name}") in NEWER:
            continue
        if key is None:
            raise Unmapped(f"{kind}.{path}{name} is no argument; there are {', '.join(sorted(fields))}")
        found[key] = _value(kind, fields[key].type, value, f"{path}{name}.")
    return found


def argument(kind: str, fields: Fields, name: str, *, top: bool) -> str | None:
    """What Terraform calls a property of Pulumi's; None where it has no such argument."""
    own = PROPERTIES.get((kind, name)) if top else None
    return own or next((candidate for candidate in _candidates(name) if candidate in fields), None)


def _candidates(name: str) -> Iterator[str]:
    base = snake(name)
    yield base
    yield base.replace("ipv4", "ipv_4")
    for ending, single in (("ies", "y"), ("es", ""), ("s", "")):
        if base.endswith(ending):
            yield base.removesuffix(ending) + single
    yield base + "s"


def _value(kind: str, what: Any, value: Any, path: str) -> Any:
    if value is UNKNOWN:
        return value
    if isinstance(what, dict):
        return arguments(kind, what, value, path)
    if isinstance(what, tuple) and what[0] in ("list", "set"):
        several = value if isinstance(value, list) else [value]
        return [_value(kind, what[1], one, path) for one in several]
    return value


def named(fields: Fields, name: str) -> dict[str, str]:
    """The names that Pulumi gives where Terraform asks for one: name, or what the name is called there."""
    return {key: f"{name}-1234567" for key, one in fields.items() if one.required and key in AUTOMATIC}


def made_up_id(token: str, name: str) -> str:
    """An id of a resource that was never made; some are checked for how they begin."""
    start = IDS.get(token.rpartition(":")[2])
    return f"{start}-{zlib.crc32(name.encode()):017x}" if start else f"{name}-id"


def made_up(kind: str, fields: Fields, name: str) -> dict[str, Any]:
    """Outputs of a resource that was never made: what AWS would compute, in the shape that others check for."""
    found = {
        camel(key): text for key, one in fields.items() if (text := made_up_text(kind, key, one, name)) is not None
    }
    return found | {
        camel(key) + ("" if key.endswith("s") else "s"): [made_up(kind, one.type[1], name)]
        for key, one in fields.items()
        if one.computed and isinstance(one.type, tuple) and isinstance(one.type[1], dict)
    }


def made_up_text(kind: str, key: str, field: Field, name: str) -> str | None:
    if field.type != "string" or not field.computed or key == "id":
        return None
    service = {"aws_lb": "elasticloadbalancing"}.get(kind, kind.split("_")[1])
    if key == "arn":
        return f"arn:aws:{service}:us-east-1:123456789012:{kind}/{name}"
    if key.endswith("_arn"):
        return f"arn:aws:{service}:us-east-1:123456789012:{kind}/{name}/{key}"
    return {"resource_record_type": "CNAME"}.get(key, f"{name}-{key}".replace("_", "-"))
