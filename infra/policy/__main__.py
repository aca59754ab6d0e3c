"""The policy pack as Pulumi's engine asks it: every rule is a policy, and what breaks one is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    PolicyResource,
    PolicyResourceOptions,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.proxy import UnknownValueError

from infra.policy.resource import UNKNOWN, Resource, Rule
from infra.policy.rules import RULES


def plain(values: Any) -> Any:
    """Inputs as the engine has them, what is not known yet as UNKNOWN."""
    if isinstance(values, Mapping):
        return {key: _known(values, key) for key in values}
    if isinstance(values, Sequence) and not isinstance(values, str):
        return [_known(values, place) for place in range(len(values))]
    return values


def _known(values: Any, key: Any) -> Any:
    try:
        return plain(values[key])
    except UnknownValueError:
        return UNKNOWN


def resource(one: PolicyResource) -> Resource:
    """A resource of the engine as rules see it."""
    needs = [other.urn for other in one.dependencies]
    needs += [other.urn for others in one.property_dependencies.values() for other in others]
    return Resource(one.resource_type, one.name, plain(one.props), one.urn, *_options(one.opts), needs)


def _options(options: PolicyResourceOptions) -> tuple[bool, list[str]]:
    return bool(options.protect), list(options.ignore_changes or [])


def whole(rule: Rule) -> StackValidationPolicy:
    """A rule that looks at several resources, as a policy of the stack."""

    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        everything = [resource(one) for one in args.resources]
        for one in everything:
            if one.type in rule.types:
                for said in rule.judge(one, everything):
                    report(f"{one.name} {said}", one.urn)

    return StackValidationPolicy(rule.name, rule.says, validate, EnforcementLevel.MANDATORY)


def single(rule: Rule) -> ResourceValidationPolicy:
    """A rule that looks at one resource, as a policy that is asked before it is made."""

    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if args.resource_type in rule.types:
            one = Resource(args.resource_type, args.name, plain(args.props), args.urn, *_options(args.opts))
            for said in rule.judge(one, [one]):
                report(f"{one.name} {said}", None)

    return ResourceValidationPolicy(rule.name, rule.says, validate, EnforcementLevel.MANDATORY)


if __name__ == "__main__":
    policies: list[Policy] = [whole(rule) if rule.whole else single(rule) for rule in RULES]
    PolicyPack("diphase", policies, EnforcementLevel.MANDATORY)
