PYTHON ?= python3
STACK ?= local
BIN := .venv/bin
# One stands up stacks, the other does all the rest. Together they take up to 16 GB.
TESTERS ?= 2
SHARED := -p tests.skips -p tests.sharing --numprocesses $(TESTERS)

# Whatever an environment says: without its bytecode each command compiles a thousand modules first.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help up down test test-aws test-kubernetes check bench lock set-up

help: ## what can be done here
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

set-up: ## install what is needed: uv, the Python environment, the Pulumi CLI
	@$(PYTHON) -m scripts.bootstrap

up: set-up ## stand up the service on this machine (STACK=local)
	@$(BIN)/diphase up --stack $(STACK)

down: set-up ## take it down again
	@$(BIN)/diphase down --stack $(STACK)

check: set-up ## format, lint and types; fast
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Images and the real cluster need root, and their first build takes half an hour; regions take ten minutes more: targets
# of their own.
test: check ## everything but images, clusters and regions, with the real Pulumi CLI and the real model
	$(BIN)/python -m pytest $(SHARED) --ignore tests/kubernetes --ignore tests/images --ignore tests/aws
	@echo "images and the tests on a real Kubernetes node are run by: make test-kubernetes"
	@echo "whole regions on a double of AWS are run by: make test-aws"

test-aws: set-up ## the aws target: the real Pulumi CLI, Terraform's AWS provider, moto
	$(BIN)/python -m pytest -p tests.skips tests/aws

test-kubernetes: set-up ## images, and what runs on a real cluster, as root; the first time builds one
	$(BIN)/python -m pytest -p tests.skips tests/images tests/kubernetes

bench: set-up ## figures, beside transformers
	$(BIN)/python -m tests.bench

lock: set-up ## lock the packages anew, after a change of pyproject.toml
	@$(BIN)/python -m scripts.lock
