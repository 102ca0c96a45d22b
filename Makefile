# make help lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# Tests that need privileges run as root: directly, or through sudo.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E env "PATH=$(PATH)")
# Where the newest kernel headers are unpacked for the generators.
UAPI ?= $(or $(SONDE_UAPI),$(HOME)/.cache/sonde/uapi)

.PHONY: help deps build vet test test-unit test-root test-kernels race fuzz generate check-generated bench docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what building and testing need (Debian packages; as root or through sudo)
	@scripts/deps.sh

build: ## bin/sonde
	CGO_ENABLED=0 go build -trimpath -o bin/sonde ./cmd/sonde

vet: ## gofmt and go vet
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt -w $$out"; exit 1; fi
	go vet ./...

test: deps vet ## everything: the three below
	@status=0; for t in test-unit test-root test-kernels; do \
		$(MAKE) --no-print-directory $$t || status=1; done; \
	if [ $$status = 0 ]; then echo "make test: all passed"; else echo "make test: FAILED"; fi; exit $$status

test-unit: ## all tests that need no privileges
	go run ./internal/kerneltest/kernels -unit

test-root: ## the tests that need a kernel, on this one, as root
	$(AS_ROOT) go run ./internal/kerneltest/kernels -host

test-kernels: ## the same on the kernels of test/kernels.txt, in QEMU
	go run ./internal/kerneltest/kernels

race: ## the unit tests with the race detector (needs cgo)
	CGO_ENABLED=1 go run ./internal/kerneltest/kernels -unit -race

fuzz: ## every fuzz target for 20 seconds
	@for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
		for f in $$(grep -h '^func Fuzz' $$p/*_test.go | sed 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/'); do \
			go test $$p -run '^$$' -fuzz "^$$f\$$" -fuzztime 20s || exit 1; done; done

$(UAPI)/usr/include/linux/version.h:
	scripts/uapi.sh $(UAPI)

generate: $(UAPI)/usr/include/linux/version.h ## the tables of internal/constant and internal/syscalls, from the newest kernel headers
	SONDE_UAPI=$(UAPI) go generate ./internal/constant ./internal/syscalls

check-generated: $(UAPI)/usr/include/linux/version.h ## fail if generate would change a file
	cd internal/constant && SONDE_UAPI=$(UAPI) go run ./gen -check
	cd internal/syscalls && SONDE_UAPI=$(UAPI) go run ./gen -check

bench: build ## side by side with strace, perf and bpftrace (as root)
	$(AS_ROOT) go run ./bench

docs: build ## man pages from the command's own help, in bin/man
	bin/sonde man bin/man

clean: ## what make built; the cache in ~/.cache/sonde stays
	rm -rf bin
