"""The roles of a stack as workloads of a Kubernetes cluster."""
