# demo, test, check, fix, docs, bench, fuzz, soak, dist: each sets up what it needs first. `uv` is used where it is installed,
# else venv and pip.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
RUNS   := $(VENV)/.runs
UV     := $(shell command -v uv 2>/dev/null)

.PHONY: demo test check fix docs bench fuzz soak dist install packages clean help

help: ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)

# What only runs hpad needs no tools of development, whose installation takes as long again.
$(STAMP): EXTRAS := [dev]
$(STAMP) $(RUNS): pyproject.toml hpad/__init__.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "hpad needs Python 3.11 or newer; $(PYTHON) is older: try make PYTHON=python3.11"; exit 1; }
ifneq ($(UV),)
	@test -x $(BIN)/python || $(UV) venv --quiet --python $(PYTHON) $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --compile-bytecode --editable '.$(EXTRAS)'
else
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.$(EXTRAS)'
endif
	@touch $@

demo: $(or $(wildcard $(STAMP)),$(RUNS)) ## real processes being autoscaled, in about two minutes
	@$(BIN)/hpad demo $(ARGS)

packages:
	@sh tests/packages.sh

# The seed of the order, the dice and the inputs of tests (1), and of the fuzzer (0: any).
SEED =

test: install packages ## every test, with the servers they need; SEED=7 for another order and other inputs
	PYTHONHASHSEED=$(or $(SEED),1) $(BIN)/pytest --numprocesses=auto --dist=loadfile $(if $(SEED),--randomly-seed=$(SEED) --hypothesis-seed=$(SEED)) $(ARGS)

check: install ## lint, types, who may import whom, and the size outliers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python tools/sizes.py

fix: install ## what the linter can mend by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: install ## write docs/reference and the diagram of docs/architecture.md from the code
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.diagram --write

bench: install ## what it costs
	@for script in tools/bench/*.py; do $(BIN)/python -m tools.bench.$$(basename $$script .py) || exit 1; done

SECONDS ?= 240

fuzz: install ## odd input of every kind, for SECONDS (240) in all; TARGETS="watch hpa" for some
ifneq ($(UV),)
	-$(UV) pip install --quiet --python $(BIN)/python --editable '.[fuzz]'
else
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
endif
	PYTHONPATH=tests $(BIN)/python -m tools.fuzz --seconds $(SECONDS) --seed $(or $(SEED),0) $(TARGETS)

dist: install ## sdist and wheel, in dist/
	@$(BIN)/python .ci/dist.py

MINUTES ?= 30
HPAS    ?= 1000

soak: install ## hpad under faults, churn and reloads for MINUTES (30) with HPAS (1000): does anything grow?
	PYTHONPATH=tests $(BIN)/python -m tools.soak --minutes $(MINUTES) --hpas $(HPAS) $(ARGS)

clean: ## forget the environment and the caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
