"""What is provisioned: one Pulumi program, read by `infra.__main__`."""
