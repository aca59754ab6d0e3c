"""The groups of the aws target: what is under the workloads and around them."""
