# `make demo` runs the main job in a fresh workspace; `make test` runs the tests. Both set up .venv first.
.DEFAULT_GOAL := help
PYTHON ?= $(shell sh .ci/pick-python)
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo-workspace
CATALOG ?= catalog-workspace
BENCHES := bench-ingest bench-evidence

.PHONY: help demo catalog test test-slow check lint constraints clean $(BENCHES)

help:  ## what can be made
	@grep -hE '^[a-z$$()A-Z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/\$$\(BENCHES\)/bench-*/; s/:.*## /\t/' | expand -t 16

# One stamp an environment: installed again only when the project file or the pins change.
$(VENV)/.installed: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || exit 1
	@echo "setting up $(VENV) with $(PYTHON)" >&2
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable "./.[demo,dev]"
	@touch $@

demo: $(VENV)/.installed  ## the main job, end to end, in demo-workspace/
	$(BIN)/kgagent -w $(DEMO) demo

test: $(VENV)/.installed  ## the tests
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.installed  ## tests that compile or ingest for minutes
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed  ## style, import contracts, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

check: test lint  ## what CI runs

$(BENCHES): bench-%: $(VENV)/.installed bench/%.py  ## bench-ingest, bench-evidence: a table, then one JSON line
	$(BIN)/python bench/$*.py

catalog: $(VENV)/.installed  ## the kernels of a dozen PyPI packages as a wiki, in catalog-workspace/
	$(BIN)/python bench/catalog.py --workspace $(CATALOG)

constraints: $(VENV)/.installed  ## pin again, for every Python found
	$(BIN)/python .ci/constraints.py

clean:  ## forget the environment, the demo and the catalogue
	rm -rf $(VENV) $(DEMO) $(CATALOG)
