# Thin: every target is a line or two that calls cmake or scripts/.
PRESET ?= release

.PHONY: setup build demo test lint format asan tsan fuzz bundle clean

setup:    ## install the packages that building and testing need
	scripts/setup

build:    ## programs and tests, in build/$(PRESET)/bin
	cmake --preset $(PRESET) && cmake --build --preset $(PRESET)

demo:     ## a streamed answer of the built-in model
	scripts/setup build && scripts/demo

test:     ## every test
	scripts/setup build test lint deploy && scripts/test-venv && $(MAKE) build && ctest --preset $(PRESET)

lint:     ## clang-format, clang-tidy, headers alone, layers, sizes
	scripts/setup && scripts/lint

format:   ## rewrite every source in the pinned format
	scripts/format

asan tsan: ## every test under address+undefined or thread sanitizer
	$(MAKE) test PRESET=$@

fuzz:     ## every fuzzer for a minute (FUZZ_SECONDS)
	scripts/setup build test && scripts/fuzz

bundle:   ## build/weightless-VERSION-ARCH.tar.gz: programs, libraries and the built-in model
	scripts/setup build && scripts/bundle

clean:
	rm -rf build
