# Everything a newcomer types. `make help` lists it; each target sets up what it lacks.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
DATE ?= 2017-11-21
STORE ?= .thawline

# Every step is a process of its own: without bytecode on disk each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
# Most modules are never imported: compiling them all ahead takes longer than the rest of the set-up.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --no-deps
# The stamps carry the locks' digests: a changed lock is installed on the next call, an unchanged one never again.
CPU := $(VENV)/cpu-$(shell sha256sum requirements/cpu.txt pyproject.toml | sha256sum | cut -c1-16).stamp
DEV := $(VENV)/dev-$(shell sha256sum requirements/dev.txt pyproject.toml | sha256sum | cut -c1-16).stamp
DEMO_LOG := .thawline/logs/complete_journey
TORCH := $(shell grep '^torch==' requirements/cpu.txt)
# On a GPU any Python with torch and pytest will do; the environment made here has torch's CPU build.
GPU_PYTHON ?= $(BIN)/python
ON_GPU := $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(DEV))

# A lock is complete, so pip resolves nothing. The CPU build of torch is looked for where pip looks anyway, then on
# PyTorch's own index.
define install
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	echo "setting up $(VENV) from $(1): a minute or two"
	$(INSTALL) $(TORCH) 2>/dev/null || $(INSTALL) --index-url https://download.pytorch.org/whl/cpu $(TORCH)
	$(INSTALL) --requirement $(1)
	$(INSTALL) --editable .
endef

.PHONY: help retrain images test test-faults test-containers test-gpu test-manifests kind-up kind-down bench-gpu bench-windows bench-reader lint ui lock clean

help: ## list the targets
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

retrain: $(CPU) $(DEMO_LOG) ## the daily retrain on the demo log: [DATE=2017-11-21] [STORE=.thawline]
	@$(BIN)/thawline retrain --recipe complete_journey --date $(DATE) --store $(STORE)

test: $(DEV) ## every test but those of the lanes below
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not gpu and not containers and not manifests and not faults" tests

test-containers: $(DEV) ## the images and the DAG in containers; installs a Docker engine where none answers and it may
	@images/engine.sh start
	@images/build.sh data trainer-cpu
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m containers tests/containers

images: $(CPU) ## build what steps run in: [IMAGES="data trainer-cpu"] [BASE_IMAGE=...]
	@images/build.sh $(IMAGES)

test-faults: $(DEV) ## hundreds of faults in storage, files and processes, by seed: nothing lost, nothing half-published
	@$(BIN)/python -m pytest -m faults tests/faults

test-manifests: $(DEV) ## what is applied to clusters: valid, hardened, consistent; no cluster is needed
	@$(BIN)/python -m pytest -n 2 --dist loadgroup -m manifests tests/manifests

test-gpu: $(ON_GPU) ## every test that needs a GPU: [GPU_PYTHON=one whose torch is built for CUDA]
	@$(GPU_PYTHON) -m pytest -m gpu --confcutdir tests/gpu tests/gpu

kind-up: ## a cluster on this machine, and the demo on it: [GPU=1 for GPU nodes, fake where there are none]
	@GPU=$(GPU) manifests/kind/up.sh

kind-down: ## delete that cluster
	@manifests/kind/down.sh

lint: $(DEV) ## ruff and mypy over all code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

ui: $(CPU) ## MLflow on localhost:5000, over the runs and models of STORE
	@$(BIN)/mlflow ui --workers 1 --host 127.0.0.1 --port 5000 --backend-store-uri sqlite:///$(abspath $(STORE))/mlflow.db

bench-%: $(CPU) $(DEMO_LOG) ## a benchmark by name, e.g. bench-strategies: [QUICK=1]
	@$(BIN)/python -m benchmarks.$(subst -,_,$*) $(if $(QUICK),--quick)

bench-windows: $(DEV) ## preparing days, against DuckDB and Polars: [QUICK=1]
bench-reader: $(DEV) ## reading them, against Hugging Face datasets and PyTorch's DataLoader: [QUICK=1]
bench-windows bench-reader:
	@$(BIN)/python -m benchmarks.$(@:bench-%=%) $(if $(QUICK),--quick)

bench-gpu: $(ON_GPU) ## what only a GPU shows, a minute of plain torch: [GPU_PYTHON=one whose torch is built for CUDA]
	@$(GPU_PYTHON) -m benchmarks.gpu

lock: $(DEV) ## resolve requirements/*.in into complete locks, keeping what still fits: [UPGRADE=1]
	@cd requirements && compile() { \
		../$(BIN)/pip-compile --quiet --strip-extras --no-header --no-emit-index-url --no-emit-find-links \
			$(if $(UPGRADE),--upgrade) --output-file $$1.txt $$1.in "$${@:2}"; \
	}; \
	compile cpu --unsafe-package fbgemm-gpu; \
	compile data --unsafe-package fbgemm-gpu --constraint cpu.txt; \
	compile dev --unsafe-package fbgemm-gpu --constraint cpu.txt; \
	compile gpu --allow-unsafe --constraint data.txt

clean: ## remove the environment, never the store
	@rm -rf $(VENV)

$(CPU):
	@$(call install,requirements/cpu.txt)
	@rm -f $(VENV)/cpu-*.stamp && touch $@

$(DEV):
	@$(call install,requirements/dev.txt)
	@rm -f $(VENV)/*.stamp && touch $@ $(CPU)

$(DEMO_LOG): | $(CPU)
	@$(BIN)/thawline data import complete-journey --out $@
