# demo, test, check, fix, docs, bench, bench-cluster, fuzz, soak, dist, image: each sets up what it needs first. `uv` is used
# where it is installed, else venv and pip.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNS   := $(VENV)/.runs
UV     := $(shell command -v uv 2>/dev/null)

.PHONY: demo test check fix docs bench bench-cluster fuzz soak dist image install packages types others clean help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install: $(STAMP)

# Targets that only run hpad do without the development tools, which double the time to install.
$(STAMP): NEEDS := [dev]
$(RUNS): NEEDS := [demo]
$(STAMP) $(RUNS): pyproject.toml hpad/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "hpad needs Python 3.11 or newer; $(PYTHON) is older: try make PYTHON=python3.11"; exit 1; }
ifneq ($(UV),)
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --compile-bytecode --editable '.$(NEEDS)'
else
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@# The pip that comes with Python 3.11 takes twice as long. Python compiles what is imported, when it is imported.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@# setuptools warns of each editable installation, in ten lines.
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --no-compile --editable '.$(NEEDS)'
endif
	@touch $@

demo: $(or $(wildcard $(STAMP)),$(RUNS)) ## autoscale real processes, in about two minutes
	@$(BIN)/hpad demo $(ARGS)

packages:
	@sh tests/packages.sh

# The seed for the order, the random numbers and the generated inputs of tests (default: 1), and for the fuzzer (0: any).
SEED =

# Most of the time of a test is waiting, hence three workers per core.
WORKERS = $$(($$(nproc) * 3))

test: install packages ## run every test, with the servers they need; ARGS="tests/engine -x" for some; SEED=7 for another order and other inputs
	PYTHONHASHSEED=$(or $(SEED),1) $(BIN)/pytest --workers=$(WORKERS) $(if $(SEED),--randomly-seed=$(SEED) --hypothesis-seed=$(SEED)) $(ARGS)

check: install ## run the linters, type checks and import rules; compare what make docs writes; refuse a class name that stands for two things; list sizes
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target types others

types:
	$(BIN)/mypy

others:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python -m tools.kind --check
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.diagram --check
	$(BIN)/python -m tools.overlays --check
	@$(BIN)/python tools/sizes.py

fix: install ## apply the fixes and the format of the linter
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: install ## write docs/reference, config/crd, the comments of config/hpad.yaml and the diagram of docs/architecture.md from the code, and config/install.yaml from its overlay
	$(BIN)/python -m tools.kind
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.diagram --write
	$(BIN)/python -m tools.overlays

bench: install ## run the benchmarks
	@for script in tools/bench/*.py; do PYTHONPATH=tests $(BIN)/python -m tools.bench.$$(basename $$script .py) || exit 1; done

bench-cluster: install ## measure hpad as a process beside an API server, also in storms; ARGS="--help" says how
	@PYTHONPATH=tests $(BIN)/python -m tools.bench.cluster $(ARGS)

SECONDS ?= 240

fuzz: install ## fuzz every parser for SECONDS (240) in all; TARGETS="watch hpa" for some
ifneq ($(UV),)
	-$(UV) pip install --quiet --python $(BIN)/python --editable '.[fuzz]'
else
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
endif
	PYTHONPATH=tests $(BIN)/python -m tools.fuzz --seconds $(SECONDS) --seed $(or $(SEED),0) $(TARGETS)

dist: install ## build the sdist and the wheel in dist/
	@$(BIN)/python .ci/dist.py

image: install ## build hpad's wheel in dist/, which needs no registry, and the image of all wheels there by podman, docker or buildah, if one works here; EXTRAS=kafka,redis
	@EXTRAS=$(EXTRAS) IMAGE=$(IMAGE) $(BIN)/python .ci/image.py

MINUTES ?= 30
HPAS    ?= 1000

soak: install ## look for leaks under faults, churn and reloads for MINUTES (30) with HPAS (1000); then play random lives and queries, and kill hpad 800 times
	PYTHONPATH=tests $(BIN)/python -m tools.soak --minutes $(MINUTES) --hpas $(HPAS) $(ARGS)
	HPAD_CRASH_KILLS=200 HPAD_LIVES="1 1000" HPAD_TEMPLATES=1000 HPAD_EFFORT=5 $(BIN)/pytest -q tests/e2e/test_crash.py tests/e2e/test_advise.py tests/controller/test_early.py tests/controller/test_early_takeover.py tests/adapters/test_prometheus_batches.py tests/election tests/engine tests/records tests/simulation tests/store

clean: ## delete the environment and the caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
