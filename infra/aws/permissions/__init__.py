"""What each workload may do in the account: statements of IAM, by workload. Pure."""
