"""The edge's certificate, which AWS renews by itself as long as its records in DNS are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_aws import acm, route53

VALIDATION_SECONDS = 60


@dataclass(frozen=True)
class CertificateArgs:
    """`names` are what it is good for, the first its own; `zone` is the id of the hosted zone that holds them."""

    names: Sequence[str]
    zone: pulumi.Input[str]


class Certificate(pulumi.ComponentResource):
    """`arn` is known only when it is valid."""

    arn: pulumi.Output[str]

    def __init__(self, name: str, args: CertificateArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Certificate", name, None, opts)
        first, *others = args.names
        certificate = acm.Certificate(
            name,
            domain_name=first,
            subject_alternative_names=others,
            validation_method="DNS",
            key_algorithm="EC_prime256v1",
            # A load balancer keeps the old one until it has the new one.
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=False),
        )
        records = [self._record(name, index, args, certificate) for index in range(len(args.names))]
        validation = acm.CertificateValidation(
            name,
            certificate_arn=certificate.arn,
            validation_record_fqdns=[record.fqdn for record in records],
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.arn = validation.certificate_arn
        self.register_outputs({"arn": self.arn})

    def _record(self, name: str, index: int, args: CertificateArgs, certificate: acm.Certificate) -> route53.Record:
        # AWS gives the options in an order of its own.
        option = certificate.domain_validation_options.apply(lambda found: _of(found, args.names[index]))
        return route53.Record(
            f"{name}-{index}",
            zone_id=args.zone,
            name=option.apply(lambda one: one.resource_record_name),
            type=option.apply(lambda one: one.resource_record_type),
            records=[option.apply(lambda one: one.resource_record_value)],
            ttl=VALIDATION_SECONDS,
            # A certificate of the same name in another region has the same record.
            allow_overwrite=True,
            opts=pulumi.ResourceOptions(parent=self),
        )


def _of(options: Sequence[Any], domain: str) -> Any:
    return next(one for one in options if one.domain_name == domain)
