# Everything a developer needs. `make demo` and `make test` set up what is missing by themselves.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2
FUZZ_SECONDS ?= 600
NODE_STAMP := tests/sdks/js/node_modules/.installed

.PHONY: help setup demo test fuzz check format lock bench clean

help: ## Show this help
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## Make .venv with everything pinned by hash

$(STAMP): requirements.lock pyproject.toml
	@echo "Setting up $(VENV) (once; a minute or so) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(NODE_STAMP): tests/sdks/js/package-lock.json
	@echo "Installing the JavaScript SDKs for the tests (once) ..."
	@cd tests/sdks/js && npm ci --silent --no-fund --no-audit --ignore-scripts
	@touch $@

demo: $(STAMP) ## Start the gateway on the embedded replay and stream one answer (ONCE=1: end after it)
	@$(BIN)/python -m headrace.cli.demo $(if $(ONCE),--once)

test: $(STAMP) $(NODE_STAMP) ## Run all tests (ARGS="-k anthropic" for some; WORKERS=0: in one process)
	@./.ci/services
	@$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

fuzz: $(STAMP) ## Fuzz everything that reads bytes, led by coverage (FUZZ_SECONDS=600, ARGS="gemini" for some of it)
	@$(BIN)/python -m tests.fuzz.guided --seconds $(FUZZ_SECONDS) $(ARGS)

check: $(STAMP) ## Lint, types, layers
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Format the code
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

lock: $(STAMP) ## Renew requirements.lock from pyproject.toml
	@$(BIN)/python -m piptools --version >/dev/null 2>&1 || $(BIN)/pip install --quiet pip-tools
	@$(BIN)/pip-compile --quiet --all-extras --generate-hashes --no-strip-extras --allow-unsafe --no-header \
		--no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file requirements.lock pyproject.toml

bench: $(STAMP) ## Measure against nginx; takes ten minutes (see bench/README.md)
	@./.ci/services
	@$(MAKE) --no-print-directory -C bench
	@$(BIN)/python bench/run.py $(ARGS)

clean: ## Remove what setup and tests made
	@rm -rf $(VENV) tests/sdks/js/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
