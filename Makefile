# The one door. `make demo` and `make test` set up what they need; a second run starts at once.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
VENV := .venv
BIN := $(VENV)/bin
# More than there are cores: most tests wait for processes.
WORKERS ?= 6
# Tests for a GPU or another system are skipped here; more skips mean that something is missing.
MAX_SKIPS ?= 15

# Without compiled bytecode every start of joblens would pay for compiling again.
unexport PYTHONDONTWRITEBYTECODE
unexport PYTHONPATH

.PHONY: help demo screenshots test every-test test-here test-vm check static format bench setup clean

help: ## list what can be done
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.base ## set up, run a measured job and a workflow, show them in a dashboard
	@scripts/demo

# Tests that watch real processes run side by side on few cores. One that failed only because the machine
# was busy passes when it is run again alone; one that is broken fails again.
# Most tests wait for processes, so the static checks run beside them.
test: $(VENV)/.dev ## set up (all extras) and run every test
	@$(MAKE) --no-print-directory --jobs 2 static every-test

# worksteal: the tests of a file stay in one process, which shares servers and imports among them.
# Without make's own variables: jobs of the tests would record them.
every-test: TEST := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL $(BIN)/python -m pytest
every-test:
	$(TEST) -n $(WORKERS) --dist worksteal --max-skips $(MAX_SKIPS) || $(TEST) --last-failed --last-failed-no-failures none

# SUITE=trixie: Debian 13 instead of 12. ONLY=...: a part of the suite, as pytest's -k.
test-vm: $(VENV)/.dev ## build and boot a virtual machine with systemd and test joblens there (root, minutes)
	@[ -n "$$JOBLENS_VM_SSH" ] || scripts/system-packages --vm
	SUITE="$(SUITE)" $(BIN)/python -m pytest -v -p no:cacheprovider --durations 15 --durations-min 10 \
	    $(if $(ONLY),-k "$(ONLY)") tests/vm

test-here: ## run the tests that need no servers with PYTHON and the packages in PACKAGES=FOLDER
	scripts/test-here run $(or $(PACKAGES),$(error PACKAGES=FOLDER is missing; see CONTRIBUTING.md))

check: $(VENV)/.dev static ## format, ruff, mypy, import-linter and the fast tests
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

static: $(VENV)/.dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy src tests scripts $(wildcard bench)
	$(BIN)/lint-imports
	scripts/check-web $(VENV)

format: $(VENV)/.dev ## rewrite the code in the one format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	scripts/check-web $(VENV) --fix

screenshots: $(VENV)/.dev ## pictures of every page of the dashboard, in output/screenshots
	$(BIN)/python scripts/screenshots.py

bench: $(VENV)/.dev ## measure joblens against its goals
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m bench

setup: $(VENV)/.dev ## set up only

clean: ## remove everything that was made here
	rm -rf $(VENV) output dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(BIN)/python:
	@scripts/system-packages
	@echo "Making $(VENV) (once)"
	@"$$(scripts/find-python)" -m venv $(VENV)

# Stamps: an install is repeated only when pyproject.toml has changed.
$(VENV)/.base: pyproject.toml | $(BIN)/python
	@echo "Installing joblens into $(VENV)"
	@scripts/install $(VENV) -e '.[server]'
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@scripts/system-packages --tests
	@echo "Installing joblens with all extras and the development tools into $(VENV)"
	@scripts/install $(VENV) -e '.[all,dev]'
	@scripts/crate-validator $(VENV)
	@scripts/check-web $(VENV) --install
	@$(BIN)/python -m compileall -q src
	@echo "Compiling the tests, which each test process would do by itself"
	@$(BIN)/python -m pytest --collect-only -qq > /dev/null || true
	@touch $@ $(VENV)/.base
