# A thin front for CMake: the real build is in CMakeLists.txt and CMakePresets.json.
#
#   make           release build, program at build/release/teng
#   make test      release build and all tests
#   make install   into PREFIX (default /usr/local), below DESTDIR if set
#   make lint      formatting, house rules, cppcheck
#   make format    formats the C files in place
#   make asan      build with address and undefined-behaviour sanitizers, fast tests
#   make clean     removes build/
#
# Missing packages are installed first; PACKAGES=no leaves them to you.

PREFIX ?= /usr/local
PACKAGES ?= yes
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: release test install lint format asan clean packages lint-packages

release: packages
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)

test: release
	@ctest --preset release -j2

install: release
	@cmake --install build/release --prefix $(PREFIX)

lint: lint-packages
	@scripts/lint.sh

format: lint-packages
	@scripts/lint.sh --format

asan: packages
	@cmake --preset asan >/dev/null
	@cmake --build --preset asan -j $(JOBS)
	@ctest --preset asan -L fast -j2

clean:
	@rm -rf build

packages:
ifneq ($(PACKAGES),no)
	@scripts/install-packages.sh
endif

lint-packages:
ifneq ($(PACKAGES),no)
	@scripts/install-packages.sh --lint
endif
