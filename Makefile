# Everything a checkout needs is made here; a second run starts in seconds.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PEERS := .venv-peers
FLOWER := .venv-flower
SPARK := .venv-spark
PIP := -m pip install --quiet --disable-pip-version-check
# One more than the cores of a small machine: the tests of services wait for most of their time.
WORKERS ?= 3
export PIP_ROOT_USER_ACTION := ignore
# Tests start hundreds of processes: where bytecode may not be kept, each of them compiles the package anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo demo-collector reproduce heldout simulate-traffic simulate-coverage test tests lint types layers wheel docs coverage nightly pythons faults bench lock clean

help:
	@echo "make demo            release a private heatmap of the example check-ins into demo/"
	@echo "make demo-collector  run two operators and 2,000 devices, and show the finished map in a page"
	@echo "make reproduce       run the experiments of a paper: PAPER=ghazi ARGS=--quick"
	@echo "make heldout         compare every method on the tables and rasters of a folder: DATA=folder ARGS=--quick"
	@echo "make simulate-traffic  run the rush hour under private traffic: ARGS='-o routes.html'"
	@echo "make simulate-coverage  find from how many phones on coverage by sums beats a pilot alone (a minute)"
	@echo "make test            lint, types, layering, tests, the wheel in an empty environment, the documentation"
	@echo "make coverage        run the tests and measure the lines they reach (quick from Python 3.12 on)"
	@echo "make nightly         random Hypothesis seeds, coverage, faults, the README in a fresh clone, and every Python from 3.11 to 3.13 found here (hours)"
	@echo "make faults          kill the collector 20 times in each of 10 collections, disorder 10 others, kill two operators 20 times each and send them 10,000 malformed reports, audit every method at length, and sum on JVM Spark (an hour)"
	@echo "make bench           measure against peers and limits in one run (makes $(PEERS), $(FLOWER); minutes)"
	@echo "make docs            build the documentation into docs/_build/html"
	@echo "make lock            resolve requirements/*.lock anew (needs uv)"
	@echo "make clean           remove the environments and everything built"

$(STAMP): pyproject.toml requirements/dev.lock requirements/neural.txt
	@echo "mapveil: making $(VENV) from requirements/dev.lock (the first run takes a minute or two)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# The lock is complete: pip would ask for the newest of a package that another names with an extra, and refuse it.
	@$(BIN)/python $(PIP) --require-hashes --no-deps -r requirements/dev.lock
	@$(BIN)/python $(PIP) --no-deps -r requirements/neural.txt
	@$(BIN)/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(PEERS)/.installed: pyproject.toml requirements/dev.lock requirements/peers.lock
	@echo "mapveil: making $(PEERS), the peers that benchmarks compare with"
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python $(PIP) -r requirements/peers.lock
	@touch $@

# Flower pins half an environment: it gets one of its own.
$(FLOWER)/.installed: requirements/flower.lock
	@echo "mapveil: making $(FLOWER), the peer of the secure sums"
	@test -x $(FLOWER)/bin/python || $(PYTHON) -m venv $(FLOWER)
	@$(FLOWER)/bin/python $(PIP) -r requirements/flower.lock
	@touch $@

# Executors of JVM Spark import mapveil, and Spark's jars come with another copy of the client that the tests use.
$(SPARK)/.installed: pyproject.toml requirements/dev.lock requirements/spark.txt
	@echo "mapveil: making $(SPARK), JVM Spark for the tests of clusters"
	@test -x $(SPARK)/bin/python || $(PYTHON) -m venv $(SPARK)
	@sed -e 's/ *\\$$//' -e '/--hash/d' requirements/dev.lock >$(SPARK)/constraints.txt
	@$(SPARK)/bin/python $(PIP) --constraint $(SPARK)/constraints.txt -r requirements/spark.txt --editable .
	@touch $@

demo: $(STAMP)
	@mkdir -p demo && rm -f demo/ledger.sqlite*
	$(BIN)/mapveil release examples/checkins_nyc.parquet --region -74.03,40.69,-73.90,40.83 \
	  --tiling quadtree:8 --epsilon 1 --ledger demo/ledger.sqlite \
	  -o demo/nyc.tif -o demo/nyc.parquet -o demo/nyc.html -o demo/nyc.png
	@echo "Look at demo/nyc.png, or open demo/nyc.html in a browser."
	@echo "make demo-collector makes such a map from 2,000 devices that tell nobody where they are."

# Serves until Ctrl-C; with DEMO_EXIT=1, or without a terminal, it ends once the page has answered.
demo-collector: $(STAMP)
	@$(BIN)/python examples/collector_demo.py --folder demo

reproduce: $(STAMP)
	$(BIN)/python -m reproductions $(PAPER) $(ARGS)

heldout: $(STAMP)
	@$(BIN)/python -m benchmarks.heldout $(if $(DATA),'$(DATA)') $(ARGS)

simulate-traffic: $(STAMP)
	$(BIN)/python -m simulations.traffic $(ARGS)

simulate-coverage: $(STAMP)
	$(BIN)/python -m simulations.coverage $(ARGS)

# The checks of the text first, two at a time; then what takes minutes.
test:
	@$(MAKE) --no-print-directory -j2 lint types layers docs wheel
	@$(MAKE) --no-print-directory tests

tests: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

# The wheel as a user gets it: in an environment of its own, away from this checkout.
WHEEL := build/wheel
wheel: $(STAMP)
	@rm -rf $(WHEEL) && mkdir -p $(WHEEL)
	$(BIN)/python -m hatchling build -t wheel -d $(WHEEL) >/dev/null
	@sed -e 's/ *\\$$//' -e '/--hash/d' requirements/dev.lock >$(WHEEL)/constraints.txt
	@$(PYTHON) -m venv $(WHEEL)/env
	@$(WHEEL)/env/bin/python $(PIP) --constraint $(WHEEL)/constraints.txt $(WHEEL)/*.whl
	cd $(WHEEL) && env/bin/mapveil release $(CURDIR)/examples/checkins_nyc.parquet --region -74.03,40.69,-73.90,40.83 \
	  --epsilon 1 --ledger ledger.sqlite --quiet -o map.parquet -o map.html && test -s map.parquet -a -s map.html

# Of the lines, 98 % were reached when last measured (Python 3.13, without PyTorch). The floor never goes down.
COVERAGE_FLOOR := 95
COVERAGE_CORE = $(shell $(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")')
coverage: $(STAMP)
	COVERAGE_CORE=$(COVERAGE_CORE) $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --cov \
	  --cov-report term:skip-covered --cov-fail-under $(COVERAGE_FLOOR)

nightly: coverage faults pythons
	$(BIN)/python -m benchmarks.first_hour --readme
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

pythons:
	@for python in python3.11 python3.12 python3.13; do \
	  $$python --version >/dev/null 2>&1 || { echo "$$python: not here"; continue; }; \
	  echo "== $$python"; \
	  $(MAKE) --no-print-directory VENV=build/$$python PYTHON=$$python tests || exit 1; \
	done

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

layers: $(STAMP)
	$(BIN)/lint-imports

faults: $(STAMP) $(SPARK)/.installed
	MAPVEIL_FAULT_SEEDS=10 MAPVEIL_IMAGE=1 $(BIN)/python -m pytest -q tests/collector/faults tests/collector/hostile/test_mutated_messages.py \
	  tests/collector/operators/test_malformed_reports.py
	MAPVEIL_LONG_AUDITS=1 $(BIN)/python -m pytest -q -n $(WORKERS) tests/attacks/test_long_audits.py
	$(BIN)/python -m tests.engines.jvm_spark $(SPARK)/bin/python

bench: $(STAMP) $(PEERS)/.installed $(FLOWER)/.installed $(SPARK)/.installed
	$(BIN)/python -m benchmarks --peers $(PEERS)/bin/python --flower $(FLOWER)/bin/python \
	  --spark $(SPARK)/bin/python --page docs/reference/benchmarks.md

# From nothing: what an interrupted build left makes the next one fail.
docs: $(STAMP)
	@rm -rf docs/_build
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

lock:
	uv pip compile --quiet --universal --python-version 3.11 --group dev --no-emit-index-url \
	  --extra geo --extra viz --extra fast --extra routes --extra eval --extra phone --extra device --extra service --extra spark \
	  --no-header --no-annotate --generate-hashes pyproject.toml -o requirements/dev.lock
	uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --extra service --extra geo --extra viz --constraint requirements/dev.lock \
	  --no-header --no-annotate --generate-hashes pyproject.toml -o requirements/service.lock
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
	  requirements/peers.in -o requirements/peers.lock
	uv pip compile --quiet --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
	  requirements/flower.in -o requirements/flower.lock

clean:
	rm -rf $(VENV) $(PEERS) $(FLOWER) $(SPARK) demo build docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
