# Everything starts from git, make, Python 3.11+ and Go. `make help` lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
UV_VERSION := 0.9.30
STATE ?= .cluster
NODES ?= 512
RUN := .venv/bin/python
FORMATS := $(CURDIR)/.build/formats/venv
FORMATS_PATH := $(CURDIR)/tests:$(CURDIR)/operator
export PYTHONPATH := operator:e2e
# Also where the environment forbids it: each process that runs tests would compile all of them anew, for 7 seconds.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
# The parts of `make nightly`: each is a job of its own in the workflow.
NIGHTLY := outages faults launchers kind random formats fresh scale benches audit

.PHONY: help setup setup-demo check lint subjects coverage build build-kind monitoring test test-nodes test-cluster test-others audit \
	test-containers test-browser test-outages test-unit test-more fuzz nightly fresh generate image e2e e2e-all cluster-up cluster-down cluster-status demo demo-scale playground \
	formats formats-ready formats-record mpi-ready mpi-all-ready slurm-ready ray-ready faults faults-all bench-launch bench-recover bench-recover-full \
	bench-admission bench-admission-full bench-failover bench-overload bench-overload-full bench-schedule bench-steps \
	screenshots clean $(NIGHTLY:%=nightly-%)

help: ## List the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## Make the virtual environment from uv.lock

setup-demo: .venv/.ready-demo ## The same with JAX, for what really trains

# $(call installed,OPTIONS): what uv.lock has of the groups in OPTIONS beside the default ones.
ifdef PIP_INDEX_URL  # the same files from there; by `sync` they would come from PyPI, or be resolved anew
define installed
	@.venv/bin/uv export --locked --quiet --no-emit-project $(1) --output-file .venv/requirements.txt
	@.venv/bin/uv pip install --quiet --compile-bytecode --default-index $(PIP_INDEX_URL) --require-hashes \
		--requirements .venv/requirements.txt
	@.venv/bin/uv pip install --quiet --default-index $(PIP_INDEX_URL) --no-deps --editable .
endef
else
define installed
	@.venv/bin/uv sync --inexact --locked --quiet --compile-bytecode $(1)  # inexact: `setup` takes nothing of `setup-demo` away
endef
endif

.venv/.ready: pyproject.toml uv.lock
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@test -x .venv/bin/uv || .venv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(call installed,)
	@touch $@

.venv/.ready-demo: .venv/.ready
	$(call installed,--group demo)
	@touch $@

CHECKS := check-unit check-types check-generated check-contracts check-lint check-format
# $(call quietly,COMMANDS): one line when all is well, else all that was said.
quietly = @said=$$({ $(1); } 2>&1) && echo "ok      $@, $$SECONDS s" || { echo "$$said"; echo "FAILED  make $@"; exit 1; }

check: setup ## Format, lint, types, contracts, generated files and the quick unit tests: in about a minute
	@told=$$(mktemp) && trap 'rm -f "$$told"' EXIT && set -o pipefail && \
		if ! $(MAKE) --jobs --keep-going --output-sync=target --silent --no-print-directory $(CHECKS) 2>&1 | tee "$$told"; then \
			printf '\nAgain, each alone as named; a test: .venv/bin/pytest tests/unit/...::...\n\n'; \
			grep '^FAILED' "$$told"; exit 1; \
		fi

check-unit: setup
	$(call quietly,.venv/bin/pytest tests/unit -m "not process and not slow" --hypothesis-profile=quick \
		-q --no-header --tb=short -n auto --dist worksteal)

check-types: setup
	$(call quietly,.venv/bin/mypy)

check-generated: setup
	$(call quietly,$(RUN) -m lockstep.api.codegen.crdgen --check && $(RUN) charts/generate.py --check && \
		$(RUN) -m lockstep.controller.metrics.catalogue --check && $(RUN) docs/figures.py --check)

check-contracts: setup
	$(call quietly,.venv/bin/lint-imports)

check-lint: setup
	$(call quietly,.venv/bin/ruff check .)

check-format: setup
	$(call quietly,.venv/bin/ruff format --check .)

lint: $(filter-out check-unit,$(CHECKS)) ## All of `check` but the tests

subjects: setup ## Hold the subjects of the commits since SINCE=COMMIT to what the hook asks of them
	@test -n "$(SINCE)" || { echo "say since which commit: make subjects SINCE=main"; exit 1; }
	@commits=$$(git rev-list "$(SINCE)..HEAD") && told=$$(mktemp) && trap 'rm -f "$$told"' EXIT && \
		for commit in $$commits; do \
			git log -1 --format=%B "$$commit" > "$$told" && .venv/bin/pre-commit run subject --hook-stage commit-msg \
				--commit-msg-filename "$$told" || { git log -1 --format='%h %s' "$$commit"; exit 1; }; \
		done

coverage: setup-demo ## Which lines of lockstep the unit tests run, by module; with a page in .build/coverage
	.venv/bin/pytest tests/unit --hypothesis-profile=quick -q --no-header -n auto \
		--cov --cov-report=term:skip-covered --cov-report=html

build: setup ## Build the local cluster's programs (once; about 6 minutes on 2 cores)
	@$(RUN) -m localcluster build

$(addprefix build-,kubectl helm versitygw promtool prometheus): build-%: setup
	@$(RUN) -m localcluster build $*

build-kind: setup ## Build what the nodes of `make e2e` run where no registry has their image (once; 3 minutes)
	@nice $(RUN) -c "from localcluster import build; build.build_all(names=build.OF_KIND)"

monitoring: build-promtool build-prometheus ## Build what the tests of alerts need (once; about 3 minutes on 2 cores)

test: setup-demo build build-helm build-versitygw monitoring lint ## All checks and tests but those in a browser (`test-browser`), three parts at a time: those with clusters mostly wait
	@$(MAKE) --keep-going --jobs=3 --output-sync=target --no-print-directory test-cluster test-nodes test-unit test-others

test-nodes: setup-demo build build-versitygw mpi-ready ray-ready
	.venv/bin/pytest tests/nodes -m "not nightly" --durations=20

test-cluster: build build-prometheus
	.venv/bin/pytest tests/cluster -m "not nightly" --durations=20

test-others: build build-helm build-versitygw build-promtool
	.venv/bin/pytest tests --ignore=tests/nodes --ignore=tests/cluster --ignore=tests/unit --ignore=tests/browser --durations=20

test-outages: setup build ## Outages at full length: operator away 10 minutes, API server 2, leader 1
	LOCKSTEP_TEST_OPERATOR_AWAY=600 LOCKSTEP_TEST_API_SERVER_AWAY=120 \
		.venv/bin/pytest tests/nodes/test_training_outages.py -k "while_the"
	LOCKSTEP_TEST_LEASE=10 LOCKSTEP_TEST_LEADER_AWAY=60 LOCKSTEP_TEST_CA_OVERLAP=60 LOCKSTEP_TEST_TOKEN_SOAK=1300 \
		.venv/bin/pytest tests/cluster/test_failover.py tests/cluster/test_token_soak.py tests/nodes/test_training_trust.py

formats: formats-ready ## Checkpoints by the real libraries against their own loaders (installs 6 GB; about 10 minutes on 2 cores)
	@fixtures=$$(mktemp -d) && trap 'rm -rf "$$fixtures"' EXIT && cd tests/formats && \
		export LOCKSTEP_FORMATS_FIXTURES=$$fixtures PYTHONPATH=$(FORMATS_PATH) && \
		$(FORMATS)/bin/python record.py && \
		$(CURDIR)/.venv/bin/pytest $(CURDIR)/tests/unit/worker/checkpoints/test_formats_recorded.py && \
		$(FORMATS)/bin/pytest -c pyproject.toml .

formats-record: formats-ready ## Write tests/formats/fixtures anew
	@cd tests/formats && PYTHONPATH=$(FORMATS_PATH) $(FORMATS)/bin/python record.py

formats-ready: setup
	@DS_BUILD_OPS=0 UV_PROJECT_ENVIRONMENT=$(FORMATS) .venv/bin/uv sync --project tests/formats --locked --quiet

mpi-ready: .build/mpi/openmpi/.ready .build/mpi/mpich/.ready ## Open MPI and MPICH for the tests of `launcher: MPI` (20 MB)

mpi-all-ready: mpi-ready .build/mpi/openmpi4/.ready .build/mpi/impi-rt/.ready ## The same with Open MPI 4 and Intel MPI (140 MB)

slurm-ready: .build/mpi/debian/.ready ## Debian's Slurm and Open MPI, unpacked, for the tests that compare with them (needs apt-get)

ray-ready: .build/ray/.ready ## Ray for the tests of `launcher: Ray` (300 MB)

# Each in an environment of its own, as all of MPI's have an `mpirun`.
LAUNCHERS := tests/launchers/pyproject.toml tests/launchers/uv.lock .venv/.ready
# $(call environment,GROUP): what tests/launchers/uv.lock has of the group.
ifdef PIP_INDEX_URL  # as above
define environment
	@.venv/bin/uv venv --quiet --allow-existing --python .venv/bin/python $(@D)
	@.venv/bin/uv export --project tests/launchers --locked --quiet --no-emit-project --only-group $(1) --output-file $(@D)/locked
	@.venv/bin/uv pip install --quiet --python $(@D)/bin/python --default-index $(PIP_INDEX_URL) --require-hashes \
		--requirements $(@D)/locked
	@touch $@
endef
else
define environment
	@UV_PROJECT_ENVIRONMENT=$(CURDIR)/$(@D) .venv/bin/uv sync --project tests/launchers --python .venv/bin/python --locked --quiet \
		--only-group $(1)
	@touch $@
endef
endif

.build/mpi/%/.ready: $(LAUNCHERS)
	$(call environment,$*)

.build/mpi/debian/.ready:
	@mkdir -p .build/mpi/debs .build/mpi/debian
	@cd .build/mpi/debs && apt-get install --print-uris --no-install-recommends -qq \
		openmpi-bin munge slurmctld slurmd slurm-client | sed "s/_.*//; s/.*\///" | xargs apt-get download -qq
	@for package in .build/mpi/debs/*.deb; do dpkg -x $$package .build/mpi/debian || exit 1; done
	@touch $@

.build/ray/.ready: $(LAUNCHERS)
	$(call environment,ray)

test-unit: setup-demo mpi-ready ## Only the tests that need no cluster
	.venv/bin/pytest tests/unit -m "not nightly" -n 2 --dist worksteal --durations=20  # many wait for processes

test-more: setup ## The property tests with other examples each time, ROUNDS times over (default: 3)
	for round in $$(seq $(or $(ROUNDS),3)); do \
		.venv/bin/pytest tests/unit -m hypothesis --hypothesis-profile=others || exit 1; \
	done

fuzz: setup ## A million decisions, 100,000 specs and worker reports by random numbers, others each time; SEED=N, CASE=..., FUZZ_SECONDS=N
	@PYTHONPATH=$(PYTHONPATH):tests $(RUN) -m fuzz $(if $(CASE),--case "$(CASE)") $(if $(SEED),--seed $(SEED)) \
		$(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS))

WITH_ALL_MPIS := tests/nodes/test_training_mpi.py tests/nodes/test_training_slurm.py tests/unit/worker/launchers/test_mpi_launchers.py

nightly: ## What is not worth every run, all of it; nightly-faults one part, and so on for each of NIGHTLY
	@$(MAKE) --keep-going --no-print-directory $(NIGHTLY:%=nightly-%)

nightly-outages: test-outages

nightly-faults: faults-all

nightly-launchers: setup-demo build mpi-all-ready slurm-ready ray-ready formats-ready
	.venv/bin/pytest tests/cluster tests/nodes tests/unit -m nightly
	.venv/bin/pytest $(WITH_ALL_MPIS) -m "not nightly"

nightly-kind: e2e-all

nightly-random: fuzz
	@$(MAKE) --no-print-directory test-more ROUNDS=1

nightly-formats: formats

nightly-fresh: fresh

nightly-scale:
	$(MAKE) --no-print-directory demo-scale NODES=4096

nightly-benches:
	$(MAKE) --keep-going --no-print-directory bench-failover bench-launch bench-recover-full bench-admission-full \
		bench-overload-full bench-steps

nightly-audit: audit

generate: setup ## Write crds/, the generated docs, and what is made from the chart
	$(RUN) -m lockstep.api.codegen.crdgen
	$(RUN) charts/generate.py
	$(RUN) -m lockstep.controller.metrics.catalogue
	$(RUN) -m faults.page > docs/faults.md
	$(RUN) docs/figures.py

fresh: setup ## What the README says, on a fresh Debian with what it lists; COMMANDS="make check" ACCOUNT=user: only that, by whom; FRESH_REQUIRED=1: not skipped
	@$(RUN) -m fresh $(if $(FRESH_REQUIRED),--required) $(if $(FRESH_DIR),--folder $(FRESH_DIR)) $(if $(ACCOUNT),--account $(ACCOUNT)) $(if $(COMMANDS),"$(COMMANDS)")

audit: setup ## Known vulnerabilities of what is locked, where their databases answer; AUDIT_REQUIRED=1: they have to
	@$(RUN) -m dependency_audit $(if $(AUDIT_REQUIRED),--required)

.PHONY: docs cli-archive
docs: setup ## The documentation as a site, in .build/site: built strictly, every link checked, nothing fetched to read it
	@mkdir -p .build && .venv/bin/uv export --locked --quiet --only-group docs --output-file .build/docs.txt
	@.venv/bin/uv pip install --quiet $(if $(PIP_INDEX_URL),--default-index $(PIP_INDEX_URL)) --require-hashes \
		--requirements .build/docs.txt
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict  # warnings that --quiet hides would pass
	@echo "to read it: .venv/bin/python -m http.server --bind 127.0.0.1 --directory .build/site"

cli-archive: setup ## The command line as krew installs it, for REPOSITORY=URL: archives and their manifest, in dist
	@$(RUN) -m cli_archive $(if $(REPOSITORY),--repository $(REPOSITORY))

image: setup ## The operator's image and its SBOM; from Debian's packages where no image registry answers (3 minutes)
	@$(RUN) -m kindcluster image

# What any cluster can run is left out: tests/nodes has the same tests, on processes. With $(MAKE) in it the line would be
# run by `make --dry-run` as well.
e2e: setup ## Tests on a genuine kind cluster with real containers (docs/e2e.md)
	@$(RUN) -m kindcluster during --browser \
		make --keep-going --jobs=2 --output-sync=target --no-print-directory test-containers test-browser
	@.venv/bin/pytest e2e/host --durations=20

test-containers: setup  # on the cluster that is up
	.venv/bin/pytest e2e/containers -m "not nightly and not anywhere" --durations=20

test-browser: setup ## The web page in a Chromium (Debian: chromium-headless-shell); part of `make e2e`
	.venv/bin/pytest tests/browser --durations=20

e2e-all: setup ## All of them (25 to 30 minutes on 2 cores)
	@$(RUN) -m kindcluster during --browser .venv/bin/pytest e2e/containers tests/browser
	@.venv/bin/pytest e2e/host

cluster-up: build ## Start the local cluster
	@$(RUN) -m localcluster up --state $(STATE)

cluster-down: setup ## Stop the local cluster and remove what it made
	@$(RUN) -m localcluster down --state $(STATE)

cluster-status: setup ## Show the local cluster
	@$(RUN) -m localcluster status --state $(STATE)

demo: setup-demo $(if $(KUBECONFIG),build-kubectl,build) ## The main job with real training: a node is killed, the gang comes back
	@$(RUN) -m demo $(if $(KUBECONFIG),--kubeconfig $(KUBECONFIG))

demo-scale: build ## A gang of NODES simulated nodes
	@$(RUN) -m demo.scale --nodes $(NODES)

playground: build ## A cluster with Lockstep left up to play on, with the web page, until Ctrl-C; FOR=SECONDS ends it by itself
	@$(RUN) -m playground $(if $(FOR),--for $(FOR))

faults: setup-demo build ## The short fault menu with real training: every fault and every phase (10 minutes on 2 cores)
	.venv/bin/pytest e2e/faults -m covering --durations=20

faults-all: setup-demo build ## Every fault in every phase (about 50 minutes on 2 cores)
	.venv/bin/pytest e2e/faults

bench-launch: build ## Launch NODES pods against the floor of a bare client
	@$(RUN) -m bench.launch --nodes $(NODES)

bench-recover: build ## Let gangs of real and of simulated nodes fail, and time their way back
	@$(RUN) -m bench.recover

bench-recover-full: build ## The same often enough for its bars (some ten minutes on 2 cores)
	@$(RUN) -m bench.recover --full

bench-admission: build ## Passes over a long queue, and runs admitted on a real control plane: two bars, or exit code 1
	@$(RUN) -m bench.admission

bench-admission-full: build ## The same at the size of all its bars: 5,000 runs at once (half an hour on 2 cores)
	@$(RUN) -m bench.admission --full

bench-failover: build ## Kill the leader of runs on NODES simulated nodes (default: 50 runs on 512)
	@$(RUN) -m bench.failover --cluster-nodes $(NODES)

bench-overload: build ## Launch a gang beside 20 busy processes, with an API server that answers late
	@$(RUN) -m bench.overload

bench-overload-full: build ## The same with 1,024 nodes
	@$(RUN) -m bench.overload --full

bench-schedule: setup ## Let four ways to order a queue schedule the same simulated jobs, or those of a log (SWF=FILE)
	@$(RUN) -m bench.schedule $(if $(SWF),--swf "$(SWF)")

bench-steps: build mpi-ready ## Start processes on 64 nodes by steps, against bare agents over TCP; mpirun on 16, against sshd; WITHOUT_SSHD=1
	@$(RUN) -m bench.steps $(if $(WITHOUT_SSHD),--without-sshd) --mpirun "$(CURDIR)/.build/mpi/openmpi/bin/mpirun"

screenshots: setup ## Pictures of the web page for its documentation (needs Chromium; a minute)
	@PYTHONPATH=$(PYTHONPATH):tests $(RUN) -m support.screenshots

clean: ## Remove what was built (the Go caches stay)
	rm -rf .venv .build $(STATE)
