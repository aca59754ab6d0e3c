"""CloudFront before a region's load balancer: TLS ends near the client, nothing is cached, streams pass through."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudfront

from infra.aws.dns import Target
from infra.config.aws.edge import CloudFront as CloudFrontConfig

# AWS's own policies (CloudFront Developer Guide, "Use managed cache policies", "Use managed origin request policies").
CACHING_DISABLED = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"
ALL_BUT_HOST = "b689b0a8-53d0-40ab-baf2-68738e2966ac"
# The longest silence of an answer that CloudFront allows unless AWS raises it; the gateway's keep-alives are closer.
SILENCE_SECONDS = 60
METHODS = ["GET", "HEAD", "OPTIONS", "PUT", "POST", "PATCH", "DELETE"]


@dataclass(frozen=True)
class CloudFrontArgs:
    """`host` is what clients use, `origin` the region's own name."""

    config: CloudFrontConfig
    host: str
    origin: str


class CloudFront(pulumi.ComponentResource):
    """`target` is where `host` leads."""

    target: Target

    def __init__(self, name: str, args: CloudFrontArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:CloudFront", name, None, opts)
        origin = cloudfront.DistributionOriginArgs(
            origin_id="region",
            domain_name=args.origin,
            custom_origin_config=cloudfront.DistributionOriginCustomOriginConfigArgs(
                http_port=80,
                https_port=443,
                origin_protocol_policy="https-only",
                origin_ssl_protocols=["TLSv1.2"],
                origin_read_timeout=SILENCE_SECONDS,
                origin_keepalive_timeout=SILENCE_SECONDS,
            ),
        )
        behaviour = cloudfront.DistributionDefaultCacheBehaviorArgs(
            target_origin_id="region",
            viewer_protocol_policy="https-only",
            allowed_methods=METHODS,
            cached_methods=["GET", "HEAD"],
            cache_policy_id=CACHING_DISABLED,
            origin_request_policy_id=ALL_BUT_HOST,
            compress=False,
        )
        distribution = cloudfront.Distribution(
            name,
            enabled=True,
            aliases=[args.host],
            http_version="http2and3",
            is_ipv6_enabled=False,  # as the load balancer
            price_class=args.config.price_class,
            origins=[origin],
            default_cache_behavior=behaviour,
            restrictions=cloudfront.DistributionRestrictionsArgs(
                geo_restriction=cloudfront.DistributionRestrictionsGeoRestrictionArgs(restriction_type="none")
            ),
            viewer_certificate=cloudfront.DistributionViewerCertificateArgs(
                acm_certificate_arn=args.config.certificate_arn,
                minimum_protocol_version="TLSv1.2_2021",
                ssl_support_method="sni-only",
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.target = Target(distribution.domain_name, distribution.hosted_zone_id)
        self.register_outputs({"domain": distribution.domain_name})
