# Every target sets up what it needs (tools/setup.sh) and does nothing twice. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)

# Frameworks are installed without compiling their thousands of modules: those that are imported are compiled then, once,
# unless Python is told to keep nothing.
unexport PYTHONDONTWRITEBYTECODE

# The compiler cache lives in the tree, so that a CI that keeps .cache builds fast; NOHASHDIR lets the wheel's build
# folder share objects with build/dev.
# The compiler cache tells locales apart, and Python sets one where there is none.
export LC_ALL ?= C.UTF-8
export CCACHE_DIR ?= $(CURDIR)/.cache/ccache
export CCACHE_BASEDIR ?= $(CURDIR)
export CCACHE_NOHASHDIR ?= 1
export CCACHE_MAXSIZE ?= 2G
export CCACHE_PCH_EXTSUM ?= 1
export CCACHE_SLOPPINESS ?= pch_defines,time_macros,include_file_mtime,include_file_ctime

CMAKE_FILES := CMakeLists.txt CMakePresets.json $(wildcard cmake/*) tests/CMakeLists.txt bench/CMakeLists.txt
WHEEL_FILES := $(shell find horo cli plugins python cmake -type f -not -name '*_test.cc' 2>/dev/null) \
               CMakeLists.txt pyproject.toml
CLANG = $(shell command -v clang-14 || command -v clang || echo clang)
CLANGXX = $(shell command -v clang++-14 || command -v clang++ || echo clang++)

.PHONY: help setup setup-build setup-lint setup-sanitize setup-bench setup-python setup-test configure build release test test-all chaos \
        shipped test-python test-old-tensorflow run-old-tensorflow demo demo-cpp bench lint lint-all format sanitize asan tsan fuzz docs clean
# The recipes use all cores themselves, and two set-ups at once would meet in the package database.
.NOTPARALLEL:

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Looked at every time, which takes a tenth of a second: a kept cache says nothing about the machine it is kept for.
setup-build setup-lint setup-sanitize setup-bench setup-python setup-test:
	@tools/setup.sh $(@:setup-%=%)

setup:  ## Install what build, test and lint need
	@tools/setup.sh build lint python test

build/dev/build.ninja: $(CMAKE_FILES) | setup-build
	@cmake --preset dev
	@touch $@

configure: build/dev/build.ninja  ## Configure the dev preset

build: build/dev/build.ninja  ## Build everything with tests (build/dev)
	@cmake --build --preset dev --parallel $(JOBS)

release: setup-build  ## Build what is measured and shipped (build/release)
	@[ -f build/release/build.ninja ] || cmake --preset release
	@cmake --build --preset release --parallel $(JOBS)

# The wheel is built with the compiler and flags of the dev preset: its objects come from the compiler cache, which
# tells compilers apart by name.
PIP = CC="$${CC:-cc}" CXX="$${CXX:-c++}" .venv/bin/python -m pip
BUILD_WHEEL = --quiet --disable-pip-version-check --no-build-isolation --no-deps \
	  --config-settings cmake.build-type=RelWithDebInfo \
	  --config-settings "cmake.define.CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g1" \
	  --config-settings cmake.define.HORO_LTO=OFF --config-settings cmake.define.HORO_WERROR=ON \
	  --config-settings build-dir=build/wheel .

.venv/.installed: $(WHEEL_FILES) | setup-python
	@$(PIP) install --force-reinstall $(BUILD_WHEEL)
	@touch $@

shipped: setup-python  ## Install the package as users get it, in .venv: what benchmarks in Python measure
	@$(PIP) install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall \
	  --config-settings build-dir=build/shipped .
	@touch .venv/.installed

test-python: .venv/.installed setup-test  ## Check the installed Python package
	@.venv/bin/python -m pytest -q tests/python

test: build .venv/.installed setup-test  ## Build and run all tests
	@.venv/bin/python tools/test.py --build build/dev --jobs $(JOBS)

test-all: build .venv/.installed setup-test  ## The long forms of the tests, sanitizers and fuzzers too
	@trap 'cmake --preset dev >/dev/null' EXIT && cmake --preset dev -DHORO_TEST_PATIENCE=10 >/dev/null && \
	  LONG_TESTS=1 .venv/bin/python tools/test.py --build build/dev --jobs $(JOBS)
	@tools/planted.py
	@$(MAKE) --no-print-directory test-old-tensorflow sanitize fuzz lint-all

chaos: build setup-sanitize  ## Kill, stop, cut off and confuse the ranks of thousands of jobs; a report with times
	@tools/chaos.sh build/dev $(SCALE)

# The oldest TensorFlow with Keras 3, and Keras 2 beside it, in an environment of their own.
OLD_TENSORFLOW := .cache/tensorflow-2.16
test-old-tensorflow: .venv/.installed  ## Check the package with TensorFlow 2.16
	@tools/setup.sh old-tensorflow
	@[ ! -f $(OLD_TENSORFLOW)/.ready ] || $(MAKE) --no-print-directory run-old-tensorflow

run-old-tensorflow:
	@rm -rf build/wheels && $(PIP) wheel --wheel-dir build/wheels $(BUILD_WHEEL)
	@$(OLD_TENSORFLOW)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
	  build/wheels/horo-*.whl
	@$(OLD_TENSORFLOW)/bin/python -m pytest -q tests/python/test_tensorflow.py tests/python/test_keras.py
	@$(OLD_TENSORFLOW)/bin/python -m pytest -q tests/python/test_examples.py -k "tensorflow or keras"

demo: .venv/.installed  ## Train a network with PyTorch on 1 and on 2 ranks of this machine
	@if .venv/bin/python -c 'import sklearn, torch' 2>/dev/null; then .venv/bin/python tools/demo.py; \
	else echo "demo: PyTorch and scikit-learn are not to be had here; this is the demo in C++"; \
	  $(MAKE) --no-print-directory demo-cpp; fi

demo-cpp: release  ## Train a small network in C++ on all cores of this machine
	@tools/demo.sh build/release

bench: setup-bench  ## Measure horo and the installed peers (build/release)
	@cmake --preset release -DHORO_BENCH=ON >/dev/null
	@cmake --build --preset release --parallel $(JOBS)
	@tools/bench.sh build/release

lint: build/dev/build.ninja setup-lint  ## Format, layers, links, ruff, shellcheck
	@tools/lint.sh

lint-all: build/dev/build.ninja setup-lint  ## The same with clang-tidy over every file
	@tools/lint.sh --tidy-seconds inf

format: setup-lint  ## Rewrite the sources as the formatters want them
	@tools/lint.sh --fix

# Instrumented programs are several times slower: fewer kills, strings and starts, unless the environment says how many.
sanitize: asan tsan  ## Run the C++ tests under ASan+UBSan and under TSan

asan tsan: setup-sanitize
	@[ -f build/$@/build.ninja ] || cmake --preset $@
	@cmake --build --preset $@ --parallel $(JOBS)
	@TEST_KILLS=$(or $(TEST_KILLS),40) TEST_STRINGS=$(or $(TEST_STRINGS),500) \
	  TEST_STARTS=$(or $(TEST_STARTS),50) python3 tools/test.py --build build/$@ --jobs $(JOBS) --no-python

fuzz: setup-sanitize  ## Run every fuzzer for 20 s (SECONDS_EACH=n)
	@cmake --preset fuzz -DCMAKE_C_COMPILER=$(CLANG) -DCMAKE_CXX_COMPILER=$(CLANGXX) >/dev/null
	@cmake --build --preset fuzz --parallel $(JOBS)
	@tools/fuzz.sh build/fuzz $(or $(SECONDS_EACH),20)

docs: build/dev/build.ninja  ## Write the generated pages and check all links
	@tools/docs.sh build/dev

clean:  ## Remove what was built (not .venv, not the compiler cache)
	@rm -rf build dist
