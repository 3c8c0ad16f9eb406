# Set-up, checks and the book; `make` alone lists the targets.
# `book`, `test` and `lint` first make the virtual environment, so a Python and make are all they need.

VENV   ?= .venv
PYTHON ?=
ARGS   ?=
UV     ?= uv

BIN := $(VENV)/bin

# What another project left in these must not reach our interpreter.
unexport PYTHONPATH PYTHONHOME

.DEFAULT_GOAL := help
.PHONY: help setup book pdf test lint lock audit clean distclean

help: ## List the targets and variables
	@echo "Targets:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-17s %s\n", $$1, $$2 }'
	@echo "Variables:"
	@echo "  PYTHON=python3.12   the Python to use (any from 3.11; found by itself when not given)"
	@echo "  VENV=.venv-3.12     the folder of the virtual environment"
	@echo "  ARGS=\"...\"          passed on, as in: make test ARGS=\"-m 'not slow' -k lock\""

setup: ## Make the virtual environment and install the locked packages
	@sh tools/set-up "$(VENV)" "$(PYTHON)"

book: setup ## Build the book and say where its first page is
	$(BIN)/companion build $(ARGS)

pdf: setup ## Build the book as one PDF with static figures (needs Chromium)
	$(BIN)/companion pdf $(ARGS)

test: setup ## Run the tests on all cores, slow and browser tests included
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

lint: setup ## Check style, format, types and layers
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

# Pins that still fit stay as they are; `make lock ARGS=--upgrade` moves them all.
lock: ## Renew requirements.lock from pyproject.toml (needs uv)
	@command -v $(UV) >/dev/null || { \
	  echo "error: make lock needs uv, which was not found as '$(UV)'; install it or name it: make lock UV=/path/to/uv" >&2; \
	  exit 1; }
	$(UV) pip compile pyproject.toml --extra book --extra dask --extra dev --extra sweep \
	  --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" --quiet --output-file requirements.lock $(ARGS)

audit: setup ## Look up the locked packages among the known vulnerabilities (needs a network)
	@sh tools/audit "$(VENV)" $(ARGS)

clean: ## Remove what was built and what tools cached; keep the virtual environment
	rm -rf _build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests $(wildcard benchmarks) -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environment too
	@if [ -f "$(VENV)/pyvenv.cfg" ]; then echo "rm -rf $(VENV)"; rm -rf "$(VENV)"; fi
