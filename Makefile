# make setup: virtual environment, dependencies, build. make run and make test do it by themselves, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find mqcore/_fast -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
STAMP := $(VENV)/.setup-stamp
BUILT := $(VENV)/.built-stamp

# What is left to make test-all: see CONTRIBUTING.md.
EVERYDAY := not slow and not root and not quarantine
PYTEST := $(BIN)/python -m pytest -n 2

# A run of the tests starts thousands of Python processes: they need not compile the same modules, each for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-all lint clean

setup: $(STAMP) $(BUILT)

$(STAMP): pyproject.toml setup.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools wheel cython
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[dev]"
	touch $(STAMP) $(BUILT)

$(BUILT): $(STAMP) $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $(BUILT)

run: setup
	$(BIN)/python -m mqcore.broker --store ./store

test: setup
	$(PYTEST) -m "$(EVERYDAY)" --second-look

test-all: setup
	$(PYTEST) --hypothesis-profile=thorough
	MQ_PURE=1 $(PYTEST) -m "$(EVERYDAY)"

lint: setup
	$(BIN)/ruff format --check conftest.py mqcore workers spark tests benchmarks
	$(BIN)/ruff check conftest.py mqcore workers spark tests benchmarks
	$(BIN)/mypy
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint mqcore/_fast
	$(BIN)/python -m mqcore.layout --check
	$(BIN)/python -m mqcore.store.column_codes --check
	$(BIN)/python -m mqcore.config --check
	$(BIN)/python -m mqcore.client.settings_page --check
	$(BIN)/python -m mqcore.client.reference_page --check

clean:
	rm -rf build $(STAMP) $(BUILT)
	find mqcore -name '*.so' -delete
