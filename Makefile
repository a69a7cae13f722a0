# Everything here sets itself up: a virtual environment in .venv, with pinned versions.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo demo-network test lint format tests soak benchmarks docs lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## carry out a whole trade on real data
	@$(BIN)/fedbourse demo --out build/demo

demo-network: $(READY) ## the same between real processes, some of them killed (a minute)
	@rm -rf build/demo-network
	@$(BIN)/fedbourse demo-network --out build/demo-network

test: lint tests ## check style, types, layers, and run all tests

lint: $(READY) ## check style, types and layers only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

tests: $(READY) ## run the tests only
	$(BIN)/pytest --numprocesses 3 --dist worksteal --cov --cov-report=term

format: $(READY) ## put the code into the one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

soak: $(READY) ## kill devices and markets at random moments (minutes), and write the tables
	@mkdir -p build
	$(BIN)/python soak/spend.py > build/soak.md && mv build/soak.md docs/soak.md
	$(BIN)/python soak/market.py > build/soak-market.md && mv build/soak-market.md docs/soak-market.md
	$(BIN)/python soak/network.py > build/soak-network.md && mv build/soak-network.md docs/soak-network.md

benchmarks: $(READY) ## measure solver, training and market against peers (minutes, 6 GB; installs peers)
	@mkdir -p build
	$(BIN)/python benchmarks/equilibrium.py > build/performance.md && mv build/performance.md docs/
	$(BIN)/python benchmarks/training.py > build/performance-training.md && mv build/performance-training.md docs/
	$(BIN)/python benchmarks/market.py > build/performance-market.md && mv build/performance-market.md docs/
	$(BIN)/python benchmarks/network.py > build/performance-network.md && mv build/performance-network.md docs/

docs: $(READY) ## write the generated pages and pictures of docs/ again
	$(BIN)/python docs/generate.py

lock: ## choose new versions for constraints.txt
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --upgrade pip
	.venv-lock/bin/pip install --quiet --group dev '.[files,study,data,postgres,flower,fast-noise,torch]'
	.venv-lock/bin/pip freeze --exclude fedbourse | sed "s/+cpu$$//" > constraints.txt
	rm -rf .venv-lock

clean: ## remove all that was made here
	rm -rf .venv build dist .*_cache .coverage .hypothesis

# The environment is made anew when what it holds should change.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fedbourse needs Python 3.11 or newer; found $$($(PYTHON) --version)"; exit 1; }
	@$(PYTHON) -m venv --clear .venv || \
	  { echo "python venv is missing: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable '.[files,study,data,postgres,flower,fast-noise,torch]'
	@touch $(READY)
