# make run and make test set up what they need by themselves, once: a virtual environment, dependencies, the extensions.
# What make run needs is little, and there in a minute or two; make setup has the rest, too: tests, linters, Spark.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find mqcore/_fast -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
READY := $(VENV)/.run-stamp
STAMP := $(VENV)/.setup-stamp
BUILT := $(VENV)/.built-stamp
TOOLS := $(VENV)/.release-stamp
PAGES := $(VENV)/.docs-stamp
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

# What is left to make test-all: see CONTRIBUTING.md.
EVERYDAY := not slow and not root and not quarantine
PYTEST = $(BIN)/python -m pytest -n $(PROCESSES)
PROCESSES := 2

# A run of the tests starts thousands of Python processes: they need not compile the same modules, each for itself.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run run-pair run-group test costs test-all test-whole test-pure test-debug debug-build test-sanitized \
	sanitize-build fuzz lint docs docs-serve wheels sbom clean

setup: $(STAMP) $(BUILT)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml | $(BIN)/python
	@echo "Packages and a compilation, once: a minute or two, and nothing to be seen of it."
	$(PIP) "setuptools>=77" "cython>=3.2"
	$(PIP) --no-build-isolation --editable ".[cli]"
	touch $(READY)

$(STAMP): pyproject.toml | $(READY)
	$(PIP) --no-build-isolation --editable ".[dev]"
	touch $(READY) $(STAMP)

# The installations above have built the extensions already: only what has changed since is built here.
$(BUILT): setup.py $(SOURCES) | $(READY)
	$(BIN)/python setup.py --quiet build_ext --inplace
	touch $(BUILT)

$(TOOLS): pyproject.toml | $(READY)
	$(PIP) --no-build-isolation --editable ".[release]"
	touch $(READY) $(TOOLS)

$(PAGES): pyproject.toml | $(READY)
	$(PIP) --no-build-isolation --editable ".[docs]"
	touch $(READY) $(PAGES)

run: $(READY) $(BUILT)
	$(BIN)/python -m mqcore.broker --store ./store

# A master whose sends wait for its slave, and the slave, on one machine; Ctrl-C stops both.
run-pair: $(READY) $(BUILT)
	trap 'kill $$master $$slave' INT TERM; \
	$(BIN)/python -m mqcore.broker --store ./store-pair/master --set brokerName=broker-a --set brokerRole=SYNC_MASTER & \
	master=$$!; \
	$(BIN)/python -m mqcore.broker --store ./store-pair/slave --set brokerName=broker-a --set brokerRole=SLAVE \
		--set brokerId=1 --set listenPort=10921 --set haMasterAddress=127.0.0.1:10912 -n 127.0.0.1:9876 & \
	slave=$$!; wait; wait

# Three brokers that elect their master, a name server and three etcd on one machine; Ctrl-C stops all.
run-group: $(READY) $(BUILT)
	exec $(BIN)/python -m mqcore.testing.group ./store-group

# Tests among real processes wait for most of their time: three times as many processes as cores, and few cores are idle.
# make costs says how it is, and writes down what takes long, for the order of later runs.
test costs: PROCESSES := 6

test: setup
	$(PYTEST) -m "$(EVERYDAY)" --second-look

costs: setup
	$(PYTEST) -m "$(EVERYDAY)" --write-costs --durations=60

# Hours: it may be stopped, and goes on with what has not passed on this tree (tests/suite/resuming.py). With -k it does
# not end with the first part in which something fails.
test-all: test-whole test-pure test-debug test-sanitized

test-whole: setup $(TOOLS)
	$(PYTEST) --resume --hypothesis-profile=thorough

test-pure: setup
	MQ_PURE=1 $(PYTEST) --resume -m "$(EVERYDAY)"

# The extensions once more, with checks of what must hold, in build/debug; MQ_DEBUG=1 takes them. See CONTRIBUTING.md.
debug-build: $(READY)
	MQ_DEBUG=1 $(BIN)/python setup.py --quiet build_ext

test-debug: setup debug-build
	MQ_DEBUG=1 $(PYTEST) --resume -m "not slow and not quarantine" tests/unit tests/fault tests/interop
	MQ_DEBUG=1 MQCORE_FAULT_ROUNDS=1 $(PYTEST) --resume -m "slow and not quarantine" tests/fault/test_kill_points.py

# Once more, watched by AddressSanitizer and UndefinedBehaviorSanitizer, in build/sanitize: kernels under their unit tests,
# and what reads bytes of peers and files under inputs by chance (tests/fuzz).
sanitize-build: $(READY)
	MQ_SANITIZE=1 $(BIN)/python setup.py --quiet build_ext

KERNEL_TESTS = $(wildcard tests/unit/test_fast_*.py tests/unit/test_store_*.py tests/unit/test_timer*.py \
	tests/unit/test_log_*.py tests/unit/test_filter_*.py tests/unit/test_protocol_*.py)

test-sanitized: setup sanitize-build
	$(BIN)/python -m tests.fuzz.under $(PYTEST) --resume -m "not slow and not quarantine" $(KERNEL_TESTS)
	$(PYTEST) --resume -m "not quarantine" tests/fuzz

fuzz: setup sanitize-build
	$(BIN)/python -m tests.fuzz --inputs 1e8

lint: setup
	$(BIN)/ruff format --check conftest.py mqcore workers spark tests benchmarks docs
	$(BIN)/ruff check conftest.py mqcore workers spark tests benchmarks docs
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.suite.kernel_floors
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/cython-lint mqcore/_fast
	$(BIN)/python -m mqcore.layout --check
	$(BIN)/python -m mqcore.store.column_codes --check
	$(BIN)/python -m mqcore.config --check
	$(BIN)/python -m mqcore.refusals --check
	$(BIN)/python -m mqcore.broker.metrics --check
	$(BIN)/python -m mqcore.client.settings.page --check
	$(BIN)/python -m mqcore.client.reference_page --check
	$(MKDOCS) build --strict

# docs as a site: into build/site, which works from that folder, or on http://127.0.0.1:8000 and made anew as pages change.
# Not with --quiet: what is not said is not counted by --strict.
MKDOCS = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

docs: $(PAGES)
	$(MKDOCS) build --strict

docs-serve: $(PAGES)
	$(MKDOCS) serve --livereload --dev-addr 127.0.0.1:8000

# Into dist/: a source distribution, and of it a wheel for each CPython of this machine. See CONTRIBUTING.md.
# make wheels WHEELS="--python 3.13 --machine x86_64 aarch64"
wheels: $(TOOLS)
	$(BIN)/python -m tests.release.wheels $(WHEELS)

# What comes with an installation, in CycloneDX's form, into build/sbom/.
sbom: $(TOOLS)
	$(BIN)/python -m tests.release.sbom

clean:
	rm -rf build dist $(READY) $(STAMP) $(BUILT)
	find mqcore -name '*.so' -delete
