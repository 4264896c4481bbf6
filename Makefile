# Everything runs in .venv, made from pyproject.toml and constraints.txt with Python 3.11 or later.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test test-fast check format bench clean

help:
	@echo "make demo       train on the embedded digits: FedAvg against anarchy, under a minute"
	@echo "make test       all tests; set ANARCHIC_DATA to a folder of data sets to include theirs"
	@echo "make test-fast  the tests that take no more than a few seconds each"
	@echo "make check      format, lint and types"
	@echo "make format     put the code into the house format"
	@echo "make bench      measure speed and scale on this machine"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(READY)

demo: $(READY)
	$(BIN)/anarchic demo

test: $(READY)
	$(BIN)/python -m pytest -n 2

test-fast: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow"

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv demo
