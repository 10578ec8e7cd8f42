# Every target sets up what it needs in .venv; PYTHON names the interpreter (>= 3.11) to make it with.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUN ?= runs/demo-$(shell date +%Y%m%d-%H%M%S)
SOURCES := pyproject.toml CMakeLists.txt $(shell find csrc cmake -type f 2>/dev/null)

.PHONY: demo test soak lint types check bench check-native check-simde check-fuzz check-guards write-guards check-kernels check-kernels-quick check-vllm check-adapters clean

demo: $(VENV)/.offline
	$(BIN)/prismem evolve --data sample --run $(RUN)

# Attacks that run without a layer of the sandbox may reach whatever runs beside them, so those tests have the machine for themselves.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal --ignore=tests/kernels --ignore=tests/vllm --ignore=tests/program/sandbox
	$(BIN)/python -m pytest tests/program/sandbox

# The long versions of tests: thousands of random program edits and the like, an hour and more.
soak: $(VENV)/.dev
	$(BIN)/python -m pytest -m soak

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

check: lint types test

# Each op against its peers and the limits of this machine; JOBS="--jobs top_k/q1-300k-384" for one, JOBS=--quick for a glance.
bench: $(VENV)/.bench
	$(BIN)/prismem bench $(JOBS)

NATIVE := PATH="$(abspath $(BIN)):$$PATH" cmake -S . -G Ninja -Wno-dev --log-level=WARNING -DCMAKE_BUILD_TYPE=Release
NATIVE_TESTS := $(NATIVE) -DPRISMEM_NATIVE_TESTS=ON
BUILD_NATIVE := PATH="$(abspath $(BIN)):$$PATH" cmake --build

# The native tests under the address, undefined-behaviour and thread sanitizers, and another project that links the cache alone.
check-native: $(VENV)/.native
	$(NATIVE_TESTS) -B build/native-address -DPRISMEM_SANITIZE=address,undefined
	$(BUILD_NATIVE) build/native-address
	build/native-address/tests/native/prismem_native_tests
	$(NATIVE_TESTS) -B build/native-thread -DPRISMEM_SANITIZE=thread
	$(BUILD_NATIVE) build/native-thread
	build/native-thread/tests/native/prismem_native_tests
	PATH="$(abspath $(BIN)):$$PATH" cmake -S tests/native/embed -B build/embed -G Ninja -Wno-dev --log-level=WARNING -DCMAKE_BUILD_TYPE=Release
	$(BUILD_NATIVE) build/embed
	rm -rf build/embed/cache
	build/embed/embed build/embed/cache | grep -x "5 words, computed"
	build/embed/embed build/embed/cache | grep -x "5 words, from the cache"

# The AVX-512 kernels on a CPU that has AVX2 alone, through SIMDe: the native tests, then the tests of ops and indexes.
check-simde: $(VENV)/.native
	$(NATIVE_TESTS) -B build/native-simde -DPRISMEM_SIMDE_INCLUDE="$$($(BIN)/python tests/native/simde/include_folder.py)"
	$(BUILD_NATIVE) build/native-simde
	build/native-simde/tests/native/prismem_native_tests
	$(NATIVE) -B build/simde -DPRISMEM_SIMDE_INCLUDE="$$($(BIN)/python tests/native/simde/include_folder.py)" \
	  -DPython_EXECUTABLE="$(abspath $(BIN))/python" -Dpybind11_DIR="$$($(BIN)/python -m pybind11 --cmakedir)"
	$(BUILD_NATIVE) build/simde --target _native
	$(BIN)/python tests/native/with_module.py build/simde tests/ops tests/index

# A short round of each libFuzzer target over what reads files; FUZZ="-runs=10000000" for a long one. What it learns stays in build/fuzz.
FUZZ ?= -max_total_time=10
check-fuzz: $(VENV)/.native
	@if ! command -v clang++ >/dev/null; then echo "check-fuzz: skipped, there is no clang++, which libFuzzer comes with"; exit 0; fi; \
	set -e; export TMPDIR="$$(test -w /dev/shm && echo /dev/shm || echo /tmp)"; \
	$(NATIVE_TESTS) -B build/fuzz -DCMAKE_CXX_COMPILER=clang++ -DPRISMEM_SANITIZE=fuzzer-no-link,address,undefined; \
	$(BUILD_NATIVE) build/fuzz --target prismem_fuzz; \
	for target in $$(find build/fuzz/tests/native/fuzz -name 'fuzz_*' -type f -perm -u+x); do \
	  name=$${target##*/}; mkdir -p build/fuzz/corpus/$$name; \
	  $$target -max_len=4096 -print_final_stats=1 -artifact_prefix=build/fuzz/ $(FUZZ) build/fuzz/corpus/$$name > build/fuzz/$$name.log 2>&1 \
	    || { tail -n 60 build/fuzz/$$name.log; exit 1; }; \
	  echo "$$name: $$(sed -n 's/stat::number_of_executed_units: *//p' build/fuzz/$$name.log) executions, nothing found"; \
	done

# Instruction counts of small jobs against those on record (tests/native/counts.json); write-guards puts new ones on record.
check-guards write-guards: $(VENV)/.native
	$(NATIVE_TESTS) -B build/native
	$(BUILD_NATIVE) build/native --target prismem_guard_jobs
	$(BIN)/python tests/native/guards.py build/native/tests/native/prismem_guard_jobs $(if $(filter write-guards,$@),--write)

# The kernels for GPUs, without one (docs/gpu.md): interpreter and machine code at two versions of triton, nvcc, the emulator.
KERNELS_VENV ?= .venv-kernels
KERNELS_PYTHON := $(KERNELS_VENV)/bin/python
KERNELS_PYTEST := $(KERNELS_PYTHON) tests/kernels/with_compiler.py -m pytest -n 2 --dist loadfile --durations 10
TRITON_TESTS := tests/kernels/triton tests/kernels/aot tests/kernels/index tests/kernels/test_four_implementations.py

check-kernels: export TRITON_CACHE_DIR ?= $(abspath build)/triton
check-kernels: $(KERNELS_VENV)/.current $(KERNELS_VENV)/.oldest
	$(KERNELS_PYTEST) tests/kernels tests/cli/test_kernels.py
	PYTHONPATH=$(abspath $(KERNELS_VENV))/oldest $(KERNELS_PYTEST) $(wildcard $(TRITON_TESTS))

# The part that needs neither torch nor triton: the CUDA kernels in the emulator, and through nvcc where there is one.
check-kernels-quick: $(VENV)/.dev
	$(BIN)/python -m pytest tests/kernels

# A real vLLM on the CPU (docs/vllm.md), in an environment of 4 GB that is made once, outside the checkout; skipped with the
# reason where it cannot be made. VLLM_TESTS="-k streaming" for a part.
check-vllm: | $(BIN)/python
	$(BIN)/python tests/vllm/environment.py $(VLLM_TESTS)

# The adapters of mem0 and A-MEM with the real packages (docs/compare.md), in an environment of 2.5 GB that is made once, outside the
# checkout; skipped with the reason where it cannot be made. ADAPTER_TESTS="-k mem0" for a part.
check-adapters: | $(BIN)/python
	$(BIN)/python -m tests.adapters.environment $(ADAPTER_TESTS)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(SOURCES) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.offline: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[offline,statistics]'
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/.bench: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	touch $@

$(VENV)/.native: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[native]'
	touch $@

$(KERNELS_PYTHON):
	$(PYTHON) -m venv $(KERNELS_VENV)

$(KERNELS_VENV)/.current: $(SOURCES) | $(KERNELS_PYTHON)
	$(KERNELS_PYTHON) -m pip install --quiet --editable '.[dev,kernels]'
	touch $@

# The oldest triton that is served, beside the current one: a folder of packages that PYTHONPATH puts first.
$(KERNELS_VENV)/.oldest: | $(KERNELS_PYTHON)
	$(KERNELS_PYTHON) -m pip install --quiet --no-deps --target $(KERNELS_VENV)/oldest triton==3.6.0 'numpy==2.3.*'
	touch $@

clean:
	rm -rf $(VENV) $(KERNELS_VENV) build
