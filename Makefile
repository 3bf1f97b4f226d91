# Everything a checkout needs is made here; a second run starts in seconds.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SHARED ?= ../shared

.PHONY: help demo test test-fast lint types layers doctest bench docs lock clean

help:
	@echo "make demo    release a private heatmap of the example check-ins into demo/"
	@echo "make test    lint, types, layering, tests and the docs' examples"
	@echo "make bench   measure against peers and limits (minutes; makes .venv-peers)"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make lock    resolve requirements/*.lock anew (needs uv)"

$(STAMP): pyproject.toml requirements/dev.lock
	@echo "mapveil: making $(VENV) (first run: a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

lock:
	uv pip compile --quiet --universal --python-version 3.11 --all-extras --group dev --no-emit-index-url \
	  --no-header --no-annotate --generate-hashes pyproject.toml -o requirements/dev.lock
