# Everything starts from git, make, Python 3.11+ and Go. `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
UV_VERSION := 0.9.9
STATE ?= .cluster
NODES ?= 512
RUN := .venv/bin/python
FORMATS := $(CURDIR)/.build/formats/venv
FORMATS_PATH := $(CURDIR)/tests:$(CURDIR)/operator
export PYTHONPATH := operator:e2e

.DEFAULT_GOAL := help
.PHONY: help setup build test test-outages test-unit lint generate cluster-up cluster-down cluster-status demo demo-scale \
	formats formats-ready formats-record faults faults-all bench-launch bench-recover bench-admission bench-schedule clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make the virtual environment from uv.lock

.venv/.ready: pyproject.toml uv.lock
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@test -x .venv/bin/uv || .venv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@.venv/bin/uv sync --locked --quiet --compile-bytecode  # trainers start by the dozen, without writing any
	@touch $@

build: setup ## Build the local cluster's programs (once; about 8 minutes on 2 cores)
	@$(RUN) -m localcluster build

test: setup build lint ## All checks and tests
	.venv/bin/pytest tests

test-outages: setup build ## Outages at full length: operator away 10 minutes, API server 2
	LOCKSTEP_TEST_OPERATOR_AWAY=600 LOCKSTEP_TEST_API_SERVER_AWAY=120 \
		.venv/bin/pytest tests/nodes/test_training_outages.py -k "while_the"

formats: formats-ready ## Checkpoints by the real libraries against their own loaders (installs 6 GB; about 10 minutes on 2 cores)
	@fixtures=$$(mktemp -d) && trap 'rm -rf "$$fixtures"' EXIT && cd tests/formats && \
		export LOCKSTEP_FORMATS_FIXTURES=$$fixtures PYTHONPATH=$(FORMATS_PATH) && \
		$(FORMATS)/bin/python record.py && \
		$(CURDIR)/.venv/bin/pytest $(CURDIR)/tests/unit/test_formats_recorded.py && \
		$(FORMATS)/bin/pytest -c pyproject.toml .

formats-record: formats-ready ## Write tests/formats/fixtures anew
	@cd tests/formats && PYTHONPATH=$(FORMATS_PATH) $(FORMATS)/bin/python record.py

formats-ready: setup
	@DS_BUILD_OPS=0 UV_PROJECT_ENVIRONMENT=$(FORMATS) .venv/bin/uv sync --project tests/formats --locked --quiet

test-unit: setup ## Only the tests that need no cluster
	.venv/bin/pytest tests/unit

lint: setup ## ruff, mypy --strict, import contracts, generated files
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(RUN) -m lockstep.api.crdgen --check
	$(RUN) charts/generate.py --check
	$(RUN) docs/figures.py --check

generate: setup ## Write crds/, the generated docs, and what is made from the chart
	$(RUN) -m lockstep.api.crdgen
	$(RUN) charts/generate.py
	$(RUN) -m lockstep.controller.metrics > docs/metrics.md
	$(RUN) -m faults.page > docs/faults.md
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

faults: build ## The short fault menu with real training: every fault and every phase (10 minutes on 2 cores)
	.venv/bin/pytest e2e/faults -m covering

faults-all: build ## Every fault in every phase (about 50 minutes on 2 cores)
	.venv/bin/pytest e2e/faults

bench-launch: build ## Launch NODES pods against the floor of a bare client
	@$(RUN) -m bench.launch --nodes $(NODES)

bench-recover: build ## Let gangs of real and of simulated nodes fail, and time their way back
	@$(RUN) -m bench.recover

bench-admission: build ## Passes over a long queue, and runs admitted on a real control plane
	@$(RUN) -m bench.admission

bench-schedule: setup ## Let four ways to order a queue schedule the same simulated jobs
	@$(RUN) -m bench.schedule

clean: ## Remove what was built (the Go caches stay)
	rm -rf .venv .build $(STATE)
