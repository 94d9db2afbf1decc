# Every target works on a fresh clone with Go, gcc, g++ and make; what else a target needs, it says or fetches.

MODULE  := github.com/carillon-rt/carillon
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X $(MODULE)/runtime/node.release=$(VERSION)

BIN    := $(CURDIR)/bin
LIBRARIES = $(if $(filter Linux,$(shell uname -s)),$(BIN)/libcarillon-nccl.so $(BIN)/libcarillon-audit.so)
RANKS  ?= 4
NODES  ?= 2
RACE   ?= -race
# The race detector waits at the end of each process for goroutines that still run: a second, of which no test of
# ours has a use, and hundreds of processes are started.
export GORACE ?= atexit_sleep_ms=0
# Six test packages need the fake CUDA driver, which takes longer to compile than most of their tests take.
export FAKECUDA_CACHE ?= $(BIN)/fakecuda-cache
PACKAGES ?= ./...
FUZZTIME ?= 30s
STRESS ?= 10m
TRIALS ?= 100
SOAK   ?= 1h

# What make bench measures beside all-reduce, and for how long each; BENCH=. BENCHTIME=1s measures everything.
BENCH     ?= ^Benchmark(Read64|ReadTallies64|Check|Lookup|StartEnd|Wait|Off|Observe|Scrape|Overhead|FollowNode|PingPong|Exchange|Epoch|ReduceSmall|Copy|Publish|Fanout|ExporterThatBlocks|EventStream|Steady|Verdict)$$|^BenchmarkReduce$$/^type=(float32|bfloat16)$$/^op=sum$$/./^size=256KiB$$
BENCHTIME ?= 100ms
ROUNDS    ?= 5

# The linter is pinned, so that everybody sees the same findings; another version on the PATH is not used.
LINT_VERSION := 2.15.0
LINT := $(BIN)/golangci-lint
ifneq ($(filter lint,$(MAKECMDGOALS)),)
LINT := $(shell golangci-lint version 2>/dev/null | grep -q 'version v\?$(LINT_VERSION) ' && command -v golangci-lint || echo $(LINT))
endif

.DEFAULT_GOAL := help
.PHONY: help build demo test test-and-bench-once e2e jaeger lint cross bench bench-hosts sim corpus fuzz stress soak gpu fakecuda generate current clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: $(LIBRARIES) ## Build the carillon command, the examples and NCCL's companion libraries into bin/.
	@mkdir -p $(BIN)
	go build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/... ./examples/...

CFLAGS = -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -fvisibility=hidden -O2 -fPIC -shared -Wl,-z,defs

# It stays in the process when NCCL unloads it (nodelete), has nothing but libc to be found (defs), and the table of its
# symbols is one that the other one reads (both).
$(BIN)/libcarillon-nccl.so: $(wildcard runtime/attach/*.[ch] runtime/profiler/native/*.h) lifecycle/carillon_lifecycle.h
	@mkdir -p $(BIN)
	$(CC) $(CFLAGS) -Wl,-z,nodelete -Wl,-soname,$(@F) -Wl,--hash-style=both -o $@ $(filter %.c,$^)

$(BIN)/libcarillon-audit.so: runtime/attach/audit/audit.c
	@mkdir -p $(BIN)
	$(CC) $(CFLAGS) -ffreestanding -nostdlib -o $@ $<

demo: build ## Train a classifier on four processes and show what their communicators did.
	@tapes=$$(mktemp -d) && trap 'rm -rf "$$tapes"' EXIT && \
	$(BIN)/carillon run -n $(RANKS) --simulate-nodes $(NODES) --tape-dir "$$tapes" -- $(BIN)/digits && \
	printf '\nWhat their communicators did, from the tapes they left:\n\n' && \
	$(BIN)/carillon comms "$$tapes" && \
	printf '\nNext:\n' && \
	printf '  %s\n' \
	  'look on while it runs     bin/carillon run -n 4 -- bin/digits -epochs 10000, and open the health page that it names' \
	  'see the spans             OTEL_TRACES_EXPORTER=console make demo' \
	  'send them to Jaeger       OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 make demo' \
	  'see a rank die            kill -9 one of its processes: the others say which, and how they know'

test: ## Run every test that needs nothing but Go, gcc and g++, under the race detector (RACE= runs them without).
	go test $(RACE) -timeout 10m $(TESTFLAGS) $(PACKAGES)

# A package's tests and benchmarks are one program, and building it is most of the work. The programs are told to run
# benchmarks, not go test, which would run one package after the other.
test-and-bench-once: ## Run every test without the race detector, and each benchmark once, but for those that take long.
	go test -timeout 10m -skip '^Benchmark(Overhead|Steady|Verdict)$$' $(TESTFLAGS) $(PACKAGES) \
	  -args -test.bench=. -test.benchtime=1x

# The packages take the programs of E2E_BIN: each would build them for itself, which takes as long as many a test. Tests
# that say they are parallel wait most of the time. The race detector, which make test has, would look at little but the
# tests: most programs are those that users have.
e2e: export E2E_BIN := $(BIN)
e2e: build jaeger-built ## Run the tests that start real processes, and real components beside them.
	cd tests && go test -count=1 -timeout 10m ./chaos # alone: two seconds without a processor are a stall
	cd tests && go test -count=1 -timeout 10m -parallel 4 $$(go list ./... | grep -vE '/(soak|chaos)$$')
	cd tests && timeout 5m go test -run '^$$' -bench '/2x[14]$$' -benchtime 1x ./rails
	cd tests && go test -race -count=1 -timeout 5m ./soak # alone: it leaves the others no time to run

# A module of its own has Jaeger's version and those of its libraries. The go command builds it once, which takes
# minutes, and keeps it.
JAEGER := cd tests/jaeger/server && go tool

.PHONY: jaeger-built
jaeger-built:
	@$(JAEGER) -n all-in-one >/dev/null || { \
	  echo 'make: Jaeger could not be built; its source comes from the Go module proxy (go env GOPROXY)' >&2; exit 1; }

jaeger: jaeger-built ## Run a Jaeger to send spans to, on loopback: OTLP on ports 4317 and 4318, its API (no page) on 16686.
	@$(JAEGER) all-in-one --memory.max-traces=10000 --query.http-server.host-port=127.0.0.1:16686 \
	  --query.grpc-server.host-port=127.0.0.1:16685 --admin.http.host-port=127.0.0.1:14269 \
	  --collector.http-server.host-port=127.0.0.1:14268 --collector.grpc-server.host-port=127.0.0.1:14250 \
	  --collector.otlp.http.host-port=127.0.0.1:4318 --collector.otlp.grpc.host-port=127.0.0.1:4317

gpu: build ## Build what tests/gpu runs on a machine with GPUs: copy bin/ and tests/gpu there.
	go test -c -o $(BIN)/engine.test ./runtime/engine/cuda
	cd tests && go test -c -o $(BIN)/device.test ./device && go test -c -o $(BIN)/nccl.test ./nccl

fakecuda: ## Build a CUDA driver whose GPUs are host memory into bin/fakecuda, and print the variables that programs need.
	@rm -rf $(BIN)/fakecuda && mkdir -p $(BIN)/fakecuda && cd tests && go run ./fakecuda $(BIN)/fakecuda

# Types are checked in the sources. What is in assembly, or has no body in Go, is for a compiler and a linker to say.
cross: ## Check that everything builds for the other machines that people have: arm64, and macOS.
	@cd tests && go run ./cross .. linux/arm64 darwin/arm64
	@GOOS=linux GOARCH=arm64 go build ./kernels ./runtime/transport ./telemetry/tape
	@GOOS=linux GOARCH=arm64 go test -c -o /dev/null ./telemetry/tape/internal/hole

lint: $(LINT) ## Check style, and that every package imports only what it may.
	$(LINT) run ./...
	cd tests && $(LINT) run --config ../.golangci.yml ./...

$(BIN)/golangci-lint:
	GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT_VERSION)

bench: SHELL := bash -o pipefail
bench: build ## Run the benchmarks of BENCH= for BENCHTIME= each, and compare all-reduce with Open MPI's, if installed.
	@go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -benchmem ./... | awk ' \
	  function value(unit,  i) { for (i = 4; i <= NF; i++) if ($$i == unit) return $$(i-1); return "" } \
	  /^pkg:/ { pkg = substr($$2, length("$(MODULE)") + 2) } \
	  /^Benchmark.* ns\/op/ { \
	    if (!head++) printf "  %-28s %-56s %12s %10s %10s\n", "package", "benchmark", "ns/op", "MB/s", "allocs/op"; \
	    name = $$1; sub(/^Benchmark/, "", name); sub(/-[0-9]+$$/, "", name); \
	    more = ""; for (i = 5; i < NF; i += 2) if ($$(i+1) !~ /^(MB\/s|B\/op|allocs\/op)$$/) more = more "  " $$i " " $$(i+1); \
	    printf "  %-28s %-56s %12s %10s %10s%s\n", pkg, name, $$3, value("MB/s"), value("allocs/op"), more } \
	  /^(---|FAIL|panic)/ { print }'
	@echo
	@$(BIN)/carillon bench

bench-hosts: ## Compare, over hosts that are network namespaces, PXN on with off, and all-reduce with gloo's and Open MPI's; needs root.
	cd tests && go test -run '^$$' -bench . -benchtime $(ROUNDS)x ./rails

sim: build ## Inject faults into simulated jobs of 64 to 4,096 ranks; takes some minutes.
	@$(BIN)/carillon sim

corpus: build ## Score what is said of jobs that go wrong: TRIALS (100) simulated ones of each kind, and 80 real ones.
	@$(BIN)/carillon corpus --trials $(TRIALS) --ranks 64
	@$(BIN)/carillon corpus --processes 80 --ranks 8

fuzz: ## Run every fuzz target for FUZZTIME (30s).
	@grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -r -n1 dirname | sort -u | while read -r dir; do \
	  go test -list '^Fuzz' "$$dir" | grep '^Fuzz' | while read -r target; do \
	    echo "$$dir $$target"; \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$dir" || exit 1; \
	  done || exit 1; \
	done

# Seconds of STRESS, which is a number with s, m or h behind it.
STRESS_SECONDS = $$(( $(shell echo '$(STRESS)' | sed 's/s$$//; s/m$$/*60/; s/h$$/*3600/') ))

stress: ## Run the property and race tests of communicators for STRESS (10m), with new seeds each round.
	@mkdir -p $(BIN)
	@go test -race -c -o $(BIN)/ccl.stress ./runtime/ccl && go test -race -c -o $(BIN)/lifecycle.stress ./lifecycle
	@began=$$(date +%s); end=$$((began + $(STRESS_SECONDS))); round=0; \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
	  round=$$((round + 1)); seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
	  for pkg in runtime/ccl lifecycle; do \
	    set -- -test.run '^Test(Life|.*Race|Scenarios)' -rapid.nofailfile -rapid.checks 300 -rapid.seed "$$seed" -test.timeout 5m; \
	    (cd $$pkg && $(BIN)/$${pkg##*/}.stress "$$@") >$(BIN)/stress.log 2>&1 || { \
	      cat $(BIN)/stress.log; \
	      echo "stress: round $$round failed. Again: go test -race -count=20 ./$$pkg -run TestNAME -rapid.seed=$$seed"; exit 1; }; \
	  done; \
	  echo "stress: round $$round, seed $$seed: ok, $$(($$(date +%s) - began)) of $$((end - began)) s"; \
	done

# The test bounds itself, by SOAK and some minutes.
soak: ## Watch a healthy job for SOAK (1h) beside four busy processes a core: RAS must not say a word.
	@cd tests && go test -count=1 -timeout 0 -v -run '^TestSilence$$' ./soak -soak $(SOAK)

generate: ## Rewrite generated files (docs, headers, kernels, which take clang-19).
	go generate ./...

# Tests compare the other generated files with what they would generate.
current: ## Check that generated kernels are current, in a copy: the tree itself is left as it is.
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	cp -r go.mod go.sum kernels "$$copy" && \
	(cd "$$copy" && go generate ./kernels/cuda) && \
	{ diff -ru kernels "$$copy/kernels" || { echo 'not current: make generate' >&2; exit 1; }; }

clean: ## Remove what build made.
	rm -rf $(BIN)
