# The front door. `make` or `make help` lists what there is; CMake (CMakePresets.json) does the work.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
export JOBS
# Wanted, not needed: a test without them says that it was skipped.
OR_SKIP = || echo "make: the tests that lack them will be skipped" >&2

.DEFAULT_GOAL := help
.PHONY: help deps build bench demo demo-qemu gateway deb fuzz test test-native test-asan test-tsan cross cross-test cross-memory cross-deps check format install soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

deps: ## install the packages that building and testing need (apt), if any is missing
	@platforms/debian/install-deps build test

build: ## release binary, one static file: build/holdfast
	@platforms/debian/install-deps build
	@tests/run build

bench: ## Holdfast beside Redis, NATS, Mosquitto …, 6 minutes: build/bench/table.md (LONG=1 RECORD=1)
	@platforms/debian/install-deps build bench
	@platforms/debian/install-deps power-short $(OR_SKIP)
	@tests/run bench
	@/usr/bin/python3 tests/bench/bench $(if $(LONG),--long) $(if $(RECORD),--record) $(BENCH)

demo: build ## kill -9 a device, its relay and a gateway again and again; count what was lost (nothing)
	@HOLDFAST_BUILD='$(CURDIR)/build/release' platforms/raspberry-pi/demo.sh $(DEMO)

demo-qemu: build ## cut the power of two virtual boards (virt, raspi3b with an SD card) again and again: 4 minutes
	@platforms/debian/install-deps build power
	@HOLDFAST_BUILD='$(CURDIR)/build/release' platforms/raspberry-pi/demo-qemu $(DEMO)

gateway: ## the program with sinks (NATS, PostgreSQL, MQTT), for a gateway: build/holdfast-gateway
	@platforms/debian/install-deps build sinks
	@mkdir -p build && cmake --preset release -DHOLDFAST_SINKS=ON >build/release.log 2>&1 || { cat build/release.log >&2; exit 1; }
	@cmake --build --preset release -j $(JOBS) --target holdfast_gateway
	@cp -f build/release/cli/holdfast-gateway build/holdfast-gateway

deb: ## Debian packages: build/deb/*.deb; for a board: make deb ARCH=arm64|armhf
	@platforms/debian/install-deps build packages $(if $(ARCH),$(ARCH),sinks)
	@platforms/debian/build-packages $(ARCH)

test: ## all tests: native, with ASan and UBSan, with TSan (40 minutes on two cores); BOARDS="arm64 armhf armv6": these, too
	@platforms/debian/install-deps build test
	@platforms/debian/install-deps power-short $(OR_SKIP)
	@for board in $(BOARDS); do $(MAKE) --no-print-directory cross-deps ARCH=$$board || exit; done
	@tests/run native asan tsan $(BOARDS:%=%-short)

test-native test-asan test-tsan: # one of the three
	@platforms/debian/install-deps build test
	@platforms/debian/install-deps power-short $(OR_SKIP)
	@tests/run $(@:test-%=%)

cross: cross-deps ## for a board: make cross ARCH=arm64|armhf|armv6 (Pi Zero and Pi 1); build/ARCH/holdfast
	@tests/run build '$(ARCH)'

cross-test: cross-deps ## all tests that can, under qemu-user: make cross-test ARCH=arm64|armhf|armv6
	@tests/run '$(ARCH)'

cross-memory: cross ## memory of an idle relay, on a virtual board: make cross-memory ARCH=arm64|armhf|armv6
	@platforms/debian/install-deps power
	@tests/power/idle_memory.py '$(ARCH)'

cross-deps:
	@case '$(ARCH)' in arm64 | armhf | armv6) ;; *) echo 'make: ARCH is one of arm64, armhf, armv6' >&2; exit 2;; esac
	@platforms/debian/install-deps build test '$(ARCH)'
	@[ '$(ARCH)' != armv6 ] || platforms/debian/armel-root build/root/armel

fuzz: ## libFuzzer on all that comes from outside, 4 minutes: make fuzz SECONDS=60 SEED=1 TARGETS="url"
	@platforms/debian/install-deps build fuzz
	@tests/fuzz/run --seconds $(or $(SECONDS),60) --seed $(or $(SEED),1) $(TARGETS)

soak: ## the tests that take long: make soak HOLDFAST_SOAK_SECONDS=36000 (for each; default 600)
	@platforms/debian/install-deps build test
	@platforms/debian/install-deps power packages fuzz $(OR_SKIP)
	@tests/run soak

check: ## format, layering (tests/tidy) and static analysis
	@platforms/debian/install-deps build check
	@tests/tidy/check

format: ## rewrite the sources in the project's format
	@platforms/debian/install-deps check
	@tests/tidy/check --format

install: build ## headers, libraries, program: make install PREFIX=/usr/local DESTDIR=
	@DESTDIR='$(DESTDIR)' cmake --install build/release --prefix '$(PREFIX)'

clean: ## remove everything that was built
	rm -rf build
