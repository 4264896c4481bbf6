# Everything runs in .venv, made with PYTHON (3.11 or later) from pyproject.toml and constraints.txt.
PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c "import sys; print('%d.%d' % sys.version_info[:2])")
PIP := python -m pip install --quiet --disable-pip-version-check -c constraints.txt
BIN := .venv/bin
MADE := .venv/bin/python$(VERSION)
LIGHT := .venv/.light-$(VERSION)
READY := .venv/.ready-$(VERSION)
WITH_BRIDGES := .venv/.bridges-$(VERSION)
OTHER := .venv-$(VERSION)
# Tests start hundreds of Python processes: each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo race chaos fuzz simulate-faults test test-fast test-hostile test-bridges test-python check format bench bench-peers bench-compare clean

help:
	@echo "make demo       a real server, eight workers, and somebody who kills them: half a minute"
	@echo "make race       FedAvg waiting for stragglers against anarchy, in virtual time"
	@echo "make test       all tests but those of test-hostile and test-bridges; set ANARCHIC_DATA to a folder of data sets to include theirs"
	@echo "make test-fast  without the tests that are slow, alone or as a family: a minute"
	@echo "make test-hostile  abuse of a real server, and 200 seeds of simulated faults: three minutes"
	@echo "make test-bridges  models of every kind, workers in Lightning, Hugging Face and other libraries, which it installs: 1.5 GB"
	@echo "make test-python PYTHON=python3.13    the tests that need no torch, with another Python"
	@echo "make chaos      kill servers and workers for minutes, and count every update"
	@echo "make simulate-faults    10,000 seeds of crashes, bad disks and networks: half an hour or more"
	@echo "make fuzz       100,000 mutated bodies and requests"
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

# What development needs: torch and more, gigabytes.
$(READY): pyproject.toml constraints.txt | $(MADE)
	$(BIN)/$(PIP) -e ".[dev]"
	@touch $(LIGHT) $@

# What the tests of other libraries need.
$(WITH_BRIDGES): tests/bridges/flower.txt | $(READY)
	$(BIN)/$(PIP) -e ".[dev,bridges]" "setuptools<81" # with which one of Flower's packages is built
	$(BIN)/$(PIP) --no-deps --no-build-isolation -r tests/bridges/flower.txt
	@touch $@

# What the tests need that need no torch.
$(OTHER)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear $(OTHER)
	$(OTHER)/bin/$(PIP) -e ".[test]"
	@touch $@

demo: $(LIGHT)
	$(BIN)/anarchic demo --live

race: $(READY)
	$(BIN)/anarchic demo

# Attacks on a real server, and a simulator of faults. CI runs them too.
HOSTILE := tests/hostile tests/faults
# What people bring: other libraries, which development does not install, and models of every kind.
# CI runs them too.
BRIDGES := tests/bridges tests/kinds tests/train/test_modules.py
WITHOUT := $(patsubst %,--ignore %,$(HOSTILE) $(BRIDGES))

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not chaos" $(WITHOUT)
	@echo "Not run: abuse of a server and simulated faults. Run them with: make test-hostile"
	@echo "Not run: workers in other libraries, models of every kind. Run them with: make test-bridges"

test-fast: $(READY)
	$(BIN)/python -m pytest -n 3 -m "not slow and not chaos" $(WITHOUT) -p no:schemathesis -p no:anyio -p no:subtests

test-hostile: $(READY)
	$(BIN)/python -m pytest -n 2 $(HOSTILE)

test-bridges: $(WITH_BRIDGES)
	$(BIN)/python -m pytest -n 2 -m "not chaos" $(BRIDGES)

# Pages and benchmarks do not depend on the Python.
test-python: MARKS ?= not chaos
test-python: $(OTHER)/.ready
	$(OTHER)/bin/python -m pytest -n 2 -m "$(MARKS)" $(WITHOUT) --ignore tests/experiments --ignore tests/benchmarks

chaos: $(READY)
	$(BIN)/python -m tests.chaos --kills 50 --workers 16
	$(BIN)/python -m tests.chaos --kills 20 --workers 16 --store postgres --replicas 3
	$(BIN)/python -m pytest -m chaos

fuzz: $(READY)
	ANARCHIC_FUZZ=100000 $(BIN)/python -m pytest tests/test_wire_fuzz.py tests/server/test_http_fuzz.py

simulate-faults: $(READY)
	$(BIN)/python -m tests.faults --seeds 10000

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
	rm -rf .venv .venv-* .bench demo demo-live
