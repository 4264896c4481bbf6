# Everything runs in .venv, made with PYTHON (3.11 or later) from pyproject.toml and constraints.txt.
PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c "import sys; print('%d.%d' % sys.version_info[:2])")
PIP := python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Of gigabytes of packages most modules are never imported: Python compiles those that are. A minute less.
MANY := $(PIP) --no-compile
BIN := .venv/bin
MADE := .venv/bin/python$(VERSION)
LIGHT := .venv/.light-$(VERSION)
PLOTS := .venv/.plots-$(VERSION)
READY := .venv/.ready-$(VERSION)
WITH_BRIDGES := .venv/.bridges-$(VERSION)
WITH_DEPLOY := .venv/.deploy-$(VERSION)
WITH_DOCS := .venv/.docs-$(VERSION)
WITH_BROWSER := .venv/.browser-$(VERSION)
AXE := .browser/node_modules/axe-core/axe.min.js
OTHER := .venv-$(VERSION)
# Tests start hundreds of Python processes: each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo race chaos fuzz simulate-faults soak test test-fast test-hostile test-deploy test-browser test-bridges test-experiments test-python docs check format bench bench-peers bench-compare clean

help:
	@echo "make install    all that the targets below need in one go: gigabytes; without it, each installs its own"
	@echo "make demo       a real server, eight workers, and somebody who kills them: half a minute; it says where to watch"
	@echo "make race       FedAvg waiting for stragglers against anarchy, in virtual time"
	@echo "make test       all tests but those of test-experiments, test-hostile, test-deploy, test-browser, test-bridges and docs; set ANARCHIC_DATA to a folder of data sets to include theirs"
	@echo "make test-fast  without the tests that are slow, alone or as a family: a minute"
	@echo "make test-hostile  abuse of a real server and its routes, and 200 seeds of simulated faults: three minutes"
	@echo "make test-deploy   the files of deploy/ and the page docs/deploy.md, with real nginx, Caddy, PostgreSQL, Prometheus: two minutes"
	@echo "make test-browser  the live page in a real Chromium, which Debian has: two minutes"
	@echo "make test-bridges  models of every kind, workers in Lightning, Hugging Face and other libraries, which it installs: 1.5 GB"
	@echo "make test-experiments  smoke runs of the experiments, their pages, benchmarks, an installed wheel, Ray: two minutes"
	@echo "make test-python PYTHON=python3.13    the tests that need no torch, with another Python"
	@echo "make chaos      kill servers and workers for minutes, and count every update"
	@echo "make simulate-faults    10,000 seeds of crashes, bad disks and networks: half an hour or more"
	@echo "make soak       a day of virtual traffic with everything that goes wrong: ten minutes"
	@echo "make fuzz       100,000 mutated bodies and requests, and 64,000 abuses of a server"
	@echo "make docs       build the documentation in .site; its links, code blocks and notebooks are tested"
	@echo "make check      format, lint and types"
	@echo "make format     put the code into the house format"
	@echo "make bench      measure speed and scale on this machine, for docs/performance.md: an hour"
	@echo "make bench-peers    install other frameworks, to be measured beside ours: gigabytes"
	@echo "make bench-compare  hold the last results against those of the last commit"

$(MADE):
	$(PYTHON) -m venv --clear .venv

# What the demo needs: 170 MB.
$(LIGHT): pyproject.toml constraints.txt | $(MADE)
	$(BIN)/$(PIP) -e ".[server]"
	@touch $@

# What the race needs besides.
$(PLOTS): pyproject.toml constraints.txt | $(MADE)
	$(BIN)/$(PIP) -e ".[server,plots]"
	@touch $(LIGHT) $@

# What development needs: torch and more, gigabytes.
$(READY): pyproject.toml constraints.txt | $(MADE)
	$(BIN)/$(MANY) -e ".[dev]"
	@touch $(LIGHT) $(PLOTS) $@

# What the tests of other libraries need.
$(WITH_BRIDGES): tests/bridges/flower.txt | $(READY)
	$(BIN)/$(MANY) -e ".[dev,bridges]" "setuptools<81" # with which one of Flower's packages is built
	$(BIN)/$(PIP) --no-deps --no-build-isolation -r tests/bridges/flower.txt
	@touch $@

# What judges the files of deploy/; the programs themselves are Debian's, and each test names its own.
$(WITH_DEPLOY): pyproject.toml constraints.txt | $(READY)
	$(BIN)/$(MANY) -e ".[dev,deploy]"
	@touch $@

# What the documentation is built with, and what runs its notebooks.
$(WITH_DOCS): pyproject.toml constraints.txt | $(READY)
	$(BIN)/$(MANY) -e ".[dev,docs]"
	@touch $@

# What drives a browser. Chromium itself is Debian's: apt install chromium.
$(WITH_BROWSER): pyproject.toml constraints.txt | $(READY)
	$(BIN)/$(MANY) -e ".[dev,browser]"
	@touch $@

# All of these at once: pip looks for versions that fit together once, not five times.
install: | $(MADE)
	$(BIN)/$(MANY) -e ".[dev,deploy,browser,docs,bridges]" "setuptools<81"
	$(BIN)/$(PIP) --no-deps --no-build-isolation -r tests/bridges/flower.txt
	@touch $(LIGHT) $(PLOTS) $(READY)
	@touch $(WITH_BRIDGES) $(WITH_DEPLOY) $(WITH_DOCS) $(WITH_BROWSER)

# What judges whether everybody can read a page; it comes from npm.
$(AXE):
	@if command -v npm > /dev/null; then npm install --prefix .browser --silent --no-audit --no-fund axe-core@4.14.0; \
	else echo "There is no npm: the tests that need axe-core are skipped."; fi

# What the tests need that need no torch.
$(OTHER)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(OTHER)
	$(OTHER)/bin/$(MANY) -e ".[test]"
	@touch $@

demo: $(LIGHT)
	$(BIN)/anarchic demo --live

race: $(PLOTS)
	$(BIN)/anarchic demo

# Attacks on a real server, what Schemathesis sends to its routes, and a simulator of faults. CI runs
# them too.
HOSTILE := tests/hostile tests/faults tests/server/test_openapi.py
# nginx and the like, as they are installed on this machine. CI runs them too.
DEPLOY := tests/deploy
# A real browser. CI runs them too.
BROWSER := tests/browser
# What people bring: other libraries, which development does not install, and models of every kind.
# CI runs them too.
BRIDGES := tests/bridges tests/kinds tests/train/test_modules.py tests/train/test_module_buffers.py
# The site: its build, links, code blocks and notebooks. CI runs them too.
DOCS := tests/docs
# Smoke runs of the experiments, their pages, benchmarks, installed packages, Ray. CI runs them too.
EXPERIMENTS := tests/experiments tests/benchmarks tests/test_wheel.py tests/cli/test_installed_package.py tests/train/test_on_ray.py
WITHOUT := $(patsubst %,--ignore %,$(HOSTILE) $(DEPLOY) $(BROWSER) $(BRIDGES) $(DOCS) $(EXPERIMENTS))

# Plugins that only test-hostile needs: each process of a run would import them.
LEAN := -p no:schemathesis -p no:anyio -p no:subtests

# Worksteal: a process gets tests that follow each other, and makes their fixtures once.
test: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not chaos" $(WITHOUT) $(LEAN)
	@echo "Not run: abuse of a server and simulated faults. Run them with: make test-hostile"
	@echo "Not run: the files of deploy/ with nginx and others. Run them with: make test-deploy"
	@echo "Not run: the live page in a browser. Run it with: make test-browser"
	@echo "Not run: workers in other libraries, models of every kind. Run them with: make test-bridges"
	@echo "Not run: the experiments' smoke runs and pages, benchmarks, installed packages, Ray. Run them with: make test-experiments"
	@echo "Not run: the code blocks and links of the documentation. Run them with: make docs"

test-fast: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow and not chaos" $(WITHOUT) $(LEAN)

test-experiments: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not chaos" $(EXPERIMENTS) $(LEAN)

test-hostile: $(READY)
	$(BIN)/python -m pytest -n 2 $(HOSTILE)

test-deploy: $(WITH_DEPLOY)
	$(BIN)/python -m pytest -n 2 $(DEPLOY) $(LEAN)

test-browser: $(WITH_BROWSER) $(AXE)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(BROWSER) $(LEAN)

test-bridges: $(WITH_BRIDGES)
	$(BIN)/python -m pytest -n 2 -m "not chaos" $(BRIDGES) $(LEAN)

docs: $(WITH_DOCS)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(DOCS) $(LEAN)
	@echo "The site is in .site: open .site/index.html"

# Pages and benchmarks do not depend on the Python.
test-python: MARKS ?= not chaos
test-python: $(OTHER)/.ready
	$(OTHER)/bin/python -m pytest -n 3 --dist worksteal -m "$(MARKS)" $(WITHOUT) $(LEAN)

chaos: $(READY)
	$(BIN)/python -m tests.chaos --kills 50 --workers 16
	$(BIN)/python -m tests.chaos --kills 20 --workers 16 --store postgres --replicas 3
	$(BIN)/python -m pytest -m chaos

fuzz: $(READY)
	ANARCHIC_FUZZ=100000 $(BIN)/python -m pytest tests/test_wire_fuzz.py tests/server/test_http_fuzz.py
	ANARCHIC_ABUSES=64000 $(BIN)/python -m pytest -s tests/hostile/test_mixed.py

simulate-faults: $(READY)
	$(BIN)/python -m tests.faults --seeds 10000

soak: $(READY)
	$(BIN)/python -m tests.faults.soak --hours 24

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks

bench-peers: $(READY)
	$(BIN)/python -m benchmarks.peers.environments

bench-compare: $(READY)
	$(BIN)/python -m benchmarks.compare

clean:
	rm -rf .venv .venv-* .bench .browser .site demo demo-live
