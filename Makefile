# Laneway. `make` lists what it can do.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

OUT := .laneway
TOOLS = $(shell scripts/tools.sh dir)
# Flags for `laneway demo`, for example DEMO_FLAGS=--help
DEMO_FLAGS ?=
# The store of the demonstration: empty for the embedded one, or redis or cql for
# a server of its own
STORE ?=
ifneq ($(filter-out redis cql,$(STORE)),)
$(error STORE=$(STORE): use redis or cql, or leave it out for the embedded store)
endif
# Packages and flags for the tests: make test PKG=./watermark TEST_FLAGS='-run Takeover'
PKG ?= ./...
TEST_FLAGS ?=
# How many seeds make sim runs, and the first
SEEDS ?= 10000
FROM ?= 1
# Which benchmarks, and for how long each
BENCH ?= .
BENCHTIME ?= 1s

##@ Use

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo

.PHONY: build
build: ## Build bin/laneway
	@mkdir -p bin
	go build -o bin/laneway ./cmd/laneway

.PHONY: demo
demo: build ## Run the demonstration (STORE=redis or STORE=cql on that store, DEMO_FLAGS=...)
ifeq ($(STORE),)
	bin/laneway demo --data $(OUT)/demo $(DEMO_FLAGS)
else
	@scripts/packages.sh $(STORE)
	@rm -rf $(OUT)/demo-$(STORE) # the server starts empty, so the rest does
	go run ./tools/storeserver $(STORE) -- bin/laneway demo --data $(OUT)/demo-$(STORE) $(DEMO_FLAGS)
endif

##@ Test

.PHONY: test
test: ## Run every test against real servers (PKG=..., TEST_FLAGS=...)
	@mkdir -p $(OUT)
	@scripts/packages.sh
	@scripts/tools.sh install gotestsum
	@go run ./tools/testservers
	@PKG='$(PKG)' $(TOOLS)/gotestsum --format pkgname --format-hide-empty-pkg --jsonfile $(OUT)/test.json --raw-command -- scripts/test.sh $(TEST_FLAGS)

.PHONY: test-short
test-short: ## Run the tests that need no server, in under two minutes
	@scripts/tools.sh install gotestsum
	@$(TOOLS)/gotestsum --format pkgname --format-hide-empty-pkg --hide-summary skipped -- -short $(TEST_FLAGS) $(PKG)

.PHONY: test-race
test-race: ## Run every test under the race detector, against real servers (PKG=..., TEST_FLAGS=...)
	@mkdir -p $(OUT)
	@scripts/packages.sh race
	@scripts/tools.sh install gotestsum
	@go run ./tools/testservers
	@RACE=1 PKG='$(PKG)' $(TOOLS)/gotestsum --format pkgname --format-hide-empty-pkg --jsonfile $(OUT)/test.json --raw-command -- scripts/test.sh $(TEST_FLAGS)

.PHONY: sim
sim: ## Simulate deployments under faults, one for each seed (SEEDS=..., FROM=...)
	go test ./internal/sim -run Interleavings -count=1 -timeout 0 -v -seeds $(SEEDS) -from $(FROM)

.PHONY: bench
bench: ## Run the benchmarks and print their table (BENCH=..., BENCHTIME=...)
	@mkdir -p $(OUT)
	@go run ./tools/testservers
	go test -run '^$$' -bench '$(BENCH)' -benchtime $(BENCHTIME) -timeout 60m -p 1 ./bench/ ./fanout/ ./stores/redis/ ./stores/scylla/ 2>&1 | tee $(OUT)/bench.txt | grep -E '^(Benchmark|FAIL|ok|---|panic)'
	@go run ./tools/benchtable < $(OUT)/bench.txt

##@ Check and generate

.PHONY: lint
lint: ## Check format, correctness, determinism of workflows and known vulnerabilities
	@scripts/lint.sh

.PHONY: format
format: ## Format the code
	@scripts/tools.sh install gofumpt
	$(TOOLS)/gofumpt -l -w .

.PHONY: generate
generate: ## Generate code from the protobuf files
	@scripts/tools.sh install buf protoc-gen-go protoc-gen-connect-go
	PATH="$(TOOLS):$$PATH" buf generate

.PHONY: record-histories
record-histories: ## Record the workflow histories that replay tests use anew
	@go run ./tools/testservers
	go test ./replaytests -run 'TestRecord.*Histories' -count=1 -timeout 20m -record

.PHONY: tools
tools: ## Build the development tools into the cache
	@scripts/tools.sh install

.PHONY: clean
clean: ## Remove what was built, and the data of make demo (the cache stays)
	rm -rf bin $(OUT)
