"""The firewall before the load balancer: a rate for each address, and AWS's lists of what nobody should let in."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_aws import cloudwatch, wafv2

from infra.config.aws.edge import Waf as WafConfig

REFUSED = 429
# Not AWSManagedRulesCommonRuleSet: it refuses bodies of more than 8 KB, such as prompts, and what looks like code.
MANAGED = ("AWSManagedRulesAmazonIpReputationList", "AWSManagedRulesKnownBadInputsRuleSet")

NOTHING = wafv2.WebAclRuleOverrideActionNoneArgs()  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class WafArgs:
    """`forwarded`: clients come through CloudFront, so that their address is the header's."""

    config: WafConfig
    forwarded: bool
    key: pulumi.Input[str]


class Waf(pulumi.ComponentResource):
    """`arn` is that of its web ACL."""

    arn: pulumi.Output[str]

    def __init__(self, name: str, args: WafArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("diphase:aws:Waf", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        acl = wafv2.WebAcl(
            name,
            scope="REGIONAL",
            description="what may reach the gateway",
            default_action=wafv2.WebAclDefaultActionArgs(allow=wafv2.WebAclDefaultActionAllowArgs()),
            rules=[_rate(args), *(_managed() if args.config.managed_rules else [])],
            visibility_config=wafv2.WebAclVisibilityConfigArgs(
                cloudwatch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
            ),
            opts=child,
        )
        self.arn = acl.arn
        logs = cloudwatch.LogGroup(
            name,
            # CloudWatch Logs takes a firewall's log only in groups whose name begins so.
            name=f"aws-waf-logs-{pulumi.get_stack()}",
            retention_in_days=args.config.log_days,
            kms_key_id=args.key,
            opts=child,
        )
        blocked = wafv2.WebAclLoggingConfigurationLoggingFilterFilterConditionActionConditionArgs(action="BLOCK")
        kept = wafv2.WebAclLoggingConfigurationLoggingFilterFilterArgs(
            behavior="KEEP",
            requirement="MEETS_ANY",
            conditions=[wafv2.WebAclLoggingConfigurationLoggingFilterFilterConditionArgs(action_condition=blocked)],
        )
        # Keys of clients are not for logs.
        secret = wafv2.WebAclLoggingConfigurationRedactedFieldSingleHeaderArgs(name="authorization")
        wafv2.WebAclLoggingConfiguration(
            name,
            resource_arn=acl.arn,
            log_destination_configs=logs.arn,
            logging_filter=wafv2.WebAclLoggingConfigurationLoggingFilterArgs(default_behavior="DROP", filters=[kept]),
            redacted_fields=[wafv2.WebAclLoggingConfigurationRedactedFieldArgs(single_header=secret)],
            opts=child,
        )
        self.register_outputs({"arn": self.arn})


def _rate(args: WafArgs) -> wafv2.WebAclRuleArgs:
    forwarded = wafv2.WebAclRuleStatementRateBasedStatementForwardedIpConfigArgs(
        header_name="X-Forwarded-For", fallback_behavior="MATCH"
    )
    limit = wafv2.WebAclRuleStatementRateBasedStatementArgs(
        limit=args.config.requests_per_five_minutes,
        evaluation_window_sec=300,
        aggregate_key_type="FORWARDED_IP" if args.forwarded else "IP",
        forwarded_ip_config=forwarded if args.forwarded else None,
    )
    refusal = wafv2.WebAclRuleActionBlockCustomResponseArgs(
        response_code=REFUSED,
        response_headers=[
            wafv2.WebAclRuleActionBlockCustomResponseResponseHeaderArgs(name="Retry-After", value="60"),
        ],
    )
    return wafv2.WebAclRuleArgs(
        name="rate",
        priority=0,
        action=wafv2.WebAclRuleActionArgs(block=wafv2.WebAclRuleActionBlockArgs(custom_response=refusal)),
        statement=wafv2.WebAclRuleStatementArgs(rate_based_statement=limit),
        visibility_config=_seen("rate"),
    )


def _managed() -> list[wafv2.WebAclRuleArgs]:
    return [
        wafv2.WebAclRuleArgs(
            name=group,
            priority=place,
            override_action=wafv2.WebAclRuleOverrideActionArgs(none=NOTHING),
            statement=wafv2.WebAclRuleStatementArgs(
                managed_rule_group_statement=wafv2.WebAclRuleStatementManagedRuleGroupStatementArgs(
                    vendor_name="AWS", name=group
                )
            ),
            visibility_config=_seen(group),
        )
        for place, group in enumerate(MANAGED, 1)
    ]


def _seen(name: str) -> wafv2.WebAclRuleVisibilityConfigArgs:
    """Counted in CloudWatch. Samples hold headers of requests, keys among them, so none are kept."""
    return wafv2.WebAclRuleVisibilityConfigArgs(
        cloudwatch_metrics_enabled=True, metric_name=name, sampled_requests_enabled=False
    )
