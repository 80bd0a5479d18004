# Everything starts from git, make, Python 3.11+ and Go. `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
UV_VERSION := 0.9.9
STATE ?= .cluster
NODES ?= 512
RUN := .venv/bin/python
export PYTHONPATH := operator:e2e

.DEFAULT_GOAL := help
.PHONY: help setup build test test-outages test-unit lint generate cluster-up cluster-down cluster-status demo demo-scale \
	faults bench-launch clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make the virtual environment from uv.lock

.venv/.ready: pyproject.toml uv.lock
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@test -x .venv/bin/uv || .venv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@.venv/bin/uv sync --locked --quiet
	@touch $@

build: setup ## Build the local cluster's programs (once; about 6 minutes on 2 cores)
	@$(RUN) -m localcluster build

test: setup build lint ## All checks and tests
	.venv/bin/pytest tests

test-outages: setup build ## Outages at full length: operator away 10 minutes, API server 2
	LOCKSTEP_TEST_OPERATOR_AWAY=600 LOCKSTEP_TEST_API_SERVER_AWAY=120 \
		.venv/bin/pytest tests/nodes/test_training_outages.py -k "while_the"

test-unit: setup ## Only the tests that need no cluster
	.venv/bin/pytest tests/unit

lint: setup ## ruff, mypy --strict, import contracts, generated files
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(RUN) -m lockstep.api.crdgen --check
	$(RUN) docs/figures.py --check

generate: setup ## Write crds/ and the generated docs
	$(RUN) -m lockstep.api.crdgen
	$(RUN) -m lockstep.controller.metrics > docs/metrics.md
	$(RUN) docs/figures.py

cluster-up: build ## Start the local cluster
	@$(RUN) -m localcluster up --state $(STATE)

cluster-down: setup ## Stop the local cluster and remove what it made
	@$(RUN) -m localcluster down --state $(STATE)

cluster-status: setup ## Show the local cluster
	@$(RUN) -m localcluster status --state $(STATE)

demo: build ## The main job with real training: a node is killed, the gang comes back
	@$(RUN) -m demo $(if $(KUBECONFIG),--kubeconfig $(KUBECONFIG))

demo-scale: build ## A gang of NODES simulated nodes
	@$(RUN) -m demo.scale --nodes $(NODES)

bench-launch: build ## Launch NODES pods against the floor of a bare client
	@$(RUN) -m bench.launch --nodes $(NODES)

clean: ## Remove what was built (the Go caches stay)
	rm -rf .venv .build $(STATE)
