# Everything runs in a virtual environment of its own; python3 (3.11 or later) is all you need.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# One process more than there are cores, as some tests wait for something.
PYTEST = python -m pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal
# Without bytecode on disk every process of the tests would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# The processes of the tests share the cores; idle threads of BLAS and OpenMP would spin on them.
export OPENBLAS_NUM_THREADS = 1
export OMP_NUM_THREADS = 1
# uv takes seconds where pip takes a minute; pip knows indexes that uv does not.
INSTALL = @$(BIN)/uv pip install --quiet --compile-bytecode --python .venv --editable '.[$(1)]' || $(PIP) install --editable '.[$(1)]'

.PHONY: help reproduce test lint types unit test-public coverage lowest lean dist stress sanitize audit bench bench-peers bench-defaults docs figures pages node-clients stress-serve clean
.DEFAULT_GOAL := help

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.venv/core: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("tsucb needs Python 3.11 or later; set PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing tsucb into .venv ..."
	-@$(PIP) install uv
	$(call INSTALL,paper)
	@touch $@

.venv/test: .venv/core
	@echo "installing the test tools into .venv ..."
	$(call INSTALL,test)
	@touch $@

reproduce: .venv/core ## set up, then reproduce Figure 1 of the paper at small scale
	@$(BIN)/tsucb reproduce figure1 --out results/figure1

test: lint ## set up, then formatter, linter, type checker and all tests
	@$(MAKE) --no-print-directory --jobs 2 types unit  # the type checker has one process

lint: .venv/test ## formatter and linter
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: .venv/test ## type checker, strict
	@$(BIN)/mypy

unit: .venv/test ## the tests
	@$(BIN)/$(PYTEST)

coverage: .venv/test ## which lines the tests run, by module (compiled functions count as run when they are called in Python)
	@$(PIP) install pytest-cov
	@$(BIN)/$(PYTEST) --cov=tsucb --cov-report=term $(ARGS)

lowest: ## the tests with the lowest dependencies, in a virtual environment of their own (PYTHON=python3.13 for another version)
	@$(PYTHON) -m venv .venv/lowest
	@.venv/lowest/bin/python -m pip --quiet install uv
	@.venv/lowest/bin/uv pip install --quiet --python .venv/lowest --resolution lowest-direct --editable '.[test]'
	@TSUCB_CACHE=$(CURDIR)/.venv/lowest/cache .venv/lowest/bin/$(PYTEST) -W ignore::DeprecationWarning $(ARGS)

lean: ## the size of a plain installation, and the time of its import
	@rm -rf .venv/lean && $(PYTHON) -m venv .venv/lean
	@du -sm .venv/lean | awk '{printf "%d MB before\n", $$1}'
	@.venv/lean/bin/python -m pip --quiet install .
	@du -sm .venv/lean | awk '{printf "%d MB after\n", $$1}'
	@for i in 1 2 3; do .venv/lean/bin/python -c 'import time; t = time.perf_counter(); import tsucb; tsucb.Agent; print(f"import {time.perf_counter() - t:.2f} s")'; done

dist: .venv/test ## the wheel and the archive, checked, into dist/
	@$(BIN)/python -m build --no-isolation
	@$(BIN)/python -m twine check --strict dist/*

test-public: .venv/test ## the tests with Numba's own compiler, without the accelerator (slow)
	@TSUCB_COMPILER=public TSUCB_CACHE=$(CURDIR)/.venv/public $(BIN)/$(PYTEST)

stress: .venv/test ## threads, processes, evictions, logs, merges, interrupts and forged files (an hour)
	@$(BIN)/python tests/stress.py 120
	@$(BIN)/python tests/test_accepted.py 1000
	@$(BIN)/python tests/interrupts.py 100000
	@$(BIN)/python tests/forgery.py 100000
	@$(BIN)/python tests/forgery.py logs 5000
	@$(BIN)/python tests/forgery.py folders 1000
	@$(BIN)/python tests/forgery.py news 5000

sanitize: .venv/test ## the tests with every index of compiled code checked (slow)
	@NUMBA_BOUNDSCHECK=1 TSUCB_CACHE=$(CURDIR)/.venv/checked $(BIN)/$(PYTEST)

audit: .venv/test ## known vulnerabilities of all that is installed (asks a public database)
	@$(PIP) install pip-audit
	@$(BIN)/pip-audit --skip-editable

bench: .venv/core ## speed of the compiled loop and the agent, as ratios to hand-written code, and since the last run
	@$(BIN)/python -m benchmarks.engine

bench-peers: .venv/core ## speed and regret beside other bandit libraries (15 minutes, downloads them)
	@$(BIN)/python -m benchmarks.peers --out results/peers

bench-defaults: .venv/core ## rewards with nothing set, beside other libraries at their tutorials' settings (hours, resumable)
	@$(BIN)/python -m benchmarks.defaults --out results/defaults

.venv/docs: .venv/core
	@echo "installing the documentation tools into .venv ..."
	$(call INSTALL,docs)
	@touch $@

docs: .venv/docs ## the documentation, into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

node-clients: ## Personalizer's Node clients, for the tests of the service
	@npm install --silent --no-audit --no-fund --prefix tests/service/node

stress-serve: .venv/test ## kills, pauses, partitions, clock jumps, full disks under load (hours; ARGS="--kills 20 --faults 2 --seconds 5" for minutes)
	@$(BIN)/python -m tests.service.stress $(ARGS)

figures: .venv/test pages ## draw the pictures of the documentation, and fill its pages
	@$(BIN)/python docs/figures/draw.py
	@$(BIN)/python docs/figures/default.py

pages: .venv/test ## fill tables, figures, reference and printed outputs of the documentation (a minute)
	@$(BIN)/python docs/tables.py
	@$(BIN)/python docs/outputs.py

clean: ## remove the virtual environment and all caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache results site
