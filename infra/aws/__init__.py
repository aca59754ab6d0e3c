"""The aws target: what is under the workloads of a region and around them, a component for each part."""
