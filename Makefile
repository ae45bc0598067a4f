# A thin front for CMake and the scripts. `make serve` and `make test` work as the first command on a new machine.
#
#   make                 install what is missing, build build/pergola
#   make serve           build, then serve the bundled model on 127.0.0.1:8000 (MODEL=dir, PORT=n, ARGS="...")
#   make test            build, then every test
#   make test-asan       the same under AddressSanitizer and UndefinedBehaviorSanitizer
#   make test-tsan       the threaded parts under ThreadSanitizer
#   make soak            thousands of random requests, 32 at a time, each compared (SOAK_REQUESTS=10000, SOAK_SEED, SOAK_JSON;
#                        SOAK_BUILD=build-asan or build-tsan: under that sanitizer)
#   make schemas         every schema of the corpus against a random model: about three minutes
#   make test-neon       codec, kernels and layers for AArch64, under qemu
#   make kernels         every CUDA kernel for every architecture, against the recorded registers and spills
#   make fuzz            every fuzzer for FUZZ_SECONDS (60)
#   make lint            format, static analysis, include order, scripts
#   make format          clang-format on every source
#   make install         into PREFIX (/usr/local)
#   make clean           remove the build folders

SHELL := /bin/bash
BUILD ?= build
PORT ?= 8000
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
SOAK_BUILD ?= $(BUILD)
SOAK_REQUESTS ?= 10000
SOAK_SEED ?=
SOAK_JSON ?=
export PATH := $(CURDIR)/.dev/bin:$(PATH)

.PHONY: all build setup serve test test-asan test-tsan test-neon kernels soak schemas fuzz lint format install clean

all: build

setup:
	@scripts/setup

build: setup
	@TARGETS="pergola libpergola" scripts/build $(BUILD)

serve: build
	@BUILD="$(BUILD)" PORT="$(PORT)" scripts/serve "$(MODEL)" $(ARGS)

test:
	@scripts/setup --tests
	@scripts/test $(BUILD)

test-asan:
	@scripts/setup --tests
	@scripts/test build-asan -DPGL_ASAN=ON

test-tsan:
	@scripts/setup --tests
	@scripts/test build-tsan -DPGL_TSAN=ON

soak:
	@scripts/setup --tests
	@scripts/soak $(SOAK_BUILD) --requests $(SOAK_REQUESTS) \
	    $(if $(SOAK_SEED),--seed $(SOAK_SEED)) $(if $(SOAK_JSON),--json $(abspath $(SOAK_JSON)))

test-neon:
	@scripts/setup --neon
	@scripts/test-neon

schemas: build
	@scripts/setup --tests
	@PERGOLA=$(BUILD)/pergola PGL_SCHEMAS=all .venv/bin/python -m pytest -q -s tests/http/test_schemas.py

kernels:
	@scripts/setup --cuda
	@scripts/check-kernels

fuzz:
	@scripts/setup --fuzz
	@scripts/fuzz $(FUZZ_SECONDS)

lint:
	@scripts/setup --tests --lint
	@scripts/lint

format:
	@scripts/setup --lint
	@git ls-files -z '*.c' '*.h' | xargs -0 clang-format-14 -i

install: build
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

clean:
	rm -rf build build-asan build-tsan build-neon build-fuzz bridge/target
