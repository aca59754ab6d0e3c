"""How many of which GPUs a model and its traffic need: a model of memory, compute and bandwidth. Pure."""
