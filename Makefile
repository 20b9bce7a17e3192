# `make test` is the gate: it runs before each landing. `make test-all` runs what takes longer, before something is called
# finished; `make nightly` searches for hours. The other targets are their parts.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
# Two cores: the parts run one after the other and the first failure stops all.
.NOTPARALLEL:
.DEFAULT_GOAL := help

BIN := bin

heading = @printf '\n==> %s\n' '$(1)'

.PHONY: help test test-parts test-all test-all-parts nightly release vulncheck test-compose deps fmt fmt-check vet lint law unit race nested e2e build demo sim sim-sqlite lives tidy report clean-room docs bench bench-10k bench-50k clean licences mutants test-cockroach fuzz soak chaos chaos-short chaos-brief

help: ## this list
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# One server and one temporary folder for all parts; bin/*-times.txt has the seconds of each.
run = @mkdir -p $(BIN) && go build -o $(BIN)/testrun ./internal/testrun && exec $(BIN)/testrun -times $(BIN)/$@-times.txt $(MAKE) --no-print-directory $@-parts

test: deps ## the gate: all packages, linters, the demo on both stores
	$(run)

test-parts: LINT := .
test-parts: fmt-check vet lint unit e2e

test-all: deps ## what the gate leaves out: the race detector, other modules, faults, containers
	@rm -f $(BIN)/test-all.txt
	$(run)
	@scripts/passed $(BIN)/test-all.txt

test-all-parts: lint race nested chaos-brief test-compose vulncheck

NIGHTLY_SEEDS ?= 1000000
nightly: deps mutants fuzz soak lives ## searches for hours: mutants, fuzz, soak, lives of tasks, simulator, ten minutes of faults a store
	@$(MAKE) --no-print-directory sim SEEDS=$(NIGHTLY_SEEDS)
	@$(MAKE) --no-print-directory sim-sqlite
	@for store in postgres sqlite; do $(MAKE) --no-print-directory chaos CHAOS_STORE=$$store CHAOS_SECONDS=600; done

deps: ## install, or name, what the machine lacks
	$(call heading,dependencies of the machine)
	@scripts/deps

# testdata is formatted like everything else; bin and hidden folders are not ours.
GO_FILES = find . -name '*.go' -not -path './.*' -not -path './$(BIN)/*' -print0

fmt: ## format all Go files
	@$(GO_FILES) | xargs -0 -r gofmt -s -w

fmt-check: ## fail on unformatted Go files
	$(call heading,gofmt)
	@bad="$$($(GO_FILES) | xargs -0 -r gofmt -s -l)"; \
	if [[ -n "$$bad" ]]; then printf '%s\n' "$$bad" 'gofmt: run make fmt' >&2; exit 1; fi

vet: ## go vet in every module, which compiles them
	$(call heading,go vet)
	@for module in $$(scripts/modules); do go -C "$$module" vet ./...; done

lint: ## staticcheck and revive (LINT: which modules, all unless set), and docs/third-party.md against go.mod
	$(call heading,linters)
	@scripts/lint $(LINT)

vulncheck: ## known vulnerabilities of what is called, and withdrawn versions; it says so where it cannot look
	$(call heading,known vulnerabilities)
	@scripts/vulncheck

licences: ## write docs/third-party.md: what the binary links, under which licences
	@scripts/licences

law: ## who may import whom, and what must never be
	$(call heading,import law)
	@go test -count=1 ./internal/law/...

# The limit is for what hangs: it must never be near what a slow machine needs.
UNIT_LIMIT := 30m
# The packages that take longest, which for a good part wait, begin first.
FIRST := ./schema/postgres ./cmd/duly

unit: ## all tests of the root module
	$(call heading,tests)
	@go test -count=1 -timeout=$(UNIT_LIMIT) $(FIRST) ./...

# SQLite is C that a program made into Go: the detector finds nothing of ours in there and makes it six times slower.
RACE := -race -gcflags=modernc.org/sqlite/lib=-race=false

# DULY_TESTS=all: also what the gate leaves out of a test because it hardly ever finds more.
race: ## all tests of the root module under the race detector
	$(call heading,tests with -race)
	@DULY_TESTS=all CGO_ENABLED=1 go test $(RACE) -count=1 -timeout=$(UNIT_LIMIT) $(FIRST) ./...

nested: ## tests of the other modules: the laboratory, Compose, the SQL parsers, languages, tools
	$(call heading,tests of the other modules)
	@failed=; for module in $$(scripts/modules); do \
	  race=; case "$$module" in .) continue;; bench) race="$(RACE)";; esac; \
	  CGO_ENABLED=1 go -C "$$module" test $$race -count=1 -timeout=$(UNIT_LIMIT) ./... || failed+=" $$module"; \
	done; if [[ -n "$$failed" ]]; then echo "nested: failed:$$failed" >&2; exit 1; fi

test-cockroach: ## the store's suite, the demo and chaos on a real CockroachDB, where there is one
	$(call heading,on a CockroachDB)
	@scripts/test-cockroach

# It says so where there is no engine, and installs one with CI=true alone.
test-compose: ## compose.yaml started on a Docker engine and broken (COMPOSE_IMAGES=published, COMPOSE_ONLY=tour|single|cluster|upgrade)
	$(call heading,compose.yaml on a Docker engine)
	@scripts/test-compose

build: ## the binary, static: bin/duly
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o $(BIN)/duly ./cmd/duly

release: ## what users download, for six targets, into bin/release: minutes (VERSION, otherwise the changelog's)
	$(call heading,release)
	@for system in windows darwin; do CGO_ENABLED=0 GOOS=$$system go vet $$(go list ./... | grep -v '/cmd/duly$$'); done
	@scripts/release -cold -version "$(VERSION)"

e2e: build ## the demo with faults, on both stores
	$(call heading,end to end: SQLite)
	@$(BIN)/duly demo --tasks 2000 --faults some --json
	$(call heading,end to end: PostgreSQL)
	@$(BIN)/duly demo --tasks 2000 --faults some --store postgres --json

demo: build ## the demo, as the README shows it
	@$(BIN)/duly demo --tasks 1000 --faults some

SEEDS ?= 100000
sim: ## many seeds of the simulator: make sim SEEDS=100000
	$(call heading,the simulator)
	@go run ./internal/sim/run -seeds $(SEEDS)

overload: ## a simulated machine to which more is offered than it does: shares and recovery
	$(call heading,the simulator under overload)
	@go run ./internal/sim/run -world overload

SQLITE_SEEDS ?= 1000
sim-sqlite: ## seeds of the simulator on SQLite itself: make sim-sqlite SQLITE_SEEDS=1000
	$(call heading,the simulator on SQLite)
	@go run ./internal/sim/run -seeds $(SQLITE_SEEDS) -store sqlite

LIVES ?= 400000
lives: ## lives of single tasks against the core, from a seed of the day: make lives LIVES=400000
	$(call heading,lives of tasks)
	@go test -count=1 -timeout 0 ./internal/core -run '^(TestGraphs|TestStorms|TestStormThenCalm)$$' -lives $(LIVES) -lives.seed $$(date +%s)000000 -rapid.checks $(LIVES)

# -e, because tidy also looks up what only the tests of dependencies import, and a
# module proxy need not have all of that; the build still says what is missing.
tidy: ## go mod tidy in every module
	@for module in $$(scripts/modules); do go -C "$$module" mod tidy -e; done

fuzz: ## every fuzz target for FUZZ_SECONDS each (10 unless set)
	@FUZZ_SECONDS="$(FUZZ_SECONDS)" scripts/fuzz

soak: ## steady load for SOAK_SECONDS (1200 unless set); fails when memory, files or goroutines grow
	@mkdir -p $(BIN); go -C bench build -o ../$(BIN)/soak ./soak
	@$(BIN)/soak -seconds "$(or $(SOAK_SECONDS),1200)"

report: ## what the design aims at and where it is now; sizes of files and functions: a report, not a gate
	@scripts/report

docs: ## write the pages that are made from the source: coverage, settings, commands, metrics
	@go test -count=1 ./internal/law -run 'Covers|WhoMay|Sentences' -update
	@go test -count=1 ./cmd/duly -run Manual -update
	@go test -count=1 ./internal/api -run TestDocument$$ -rewrite
	@go test -count=1 ./internal/telemetry -run Page -update

clean-room: ## both README commands from a fresh clone and empty caches
	@scripts/clean-room

mutants: ## the test of the tests: deliberate faults, each of which they must catch
	@go -C bench run ./mutants

bench: ## a short round of every scenario on both stores, with reports in bin/bench-*
	$(call heading,a short round of the benchmarks)
	@mkdir -p $(BIN); go -C bench build -o ../$(BIN)/bench .
	@for store in sqlite postgres; do for run in "peak 8" "sustained 10" "spike 3" "idle 10" "growth 0"; do \
	  set -- $$run; limit=; [[ $$1 == growth ]] && limit="-preload 10000"; [[ $$1 == spike ]] && limit="-rate 20000"; [[ $$1 == peak || $$1 == sustained ]] && limit="-rate 4000"; \
	  $(BIN)/bench -scenario $$1 -store $$store -seconds $$2 $$limit -json $(BIN)/bench-$$1-$$store.json | tail -c 300; echo; done; done
	@$(BIN)/bench -verify $(BIN)/bench-*.json

bench-10k: ## 10,000 tasks a second for two minutes on PostgreSQL
	@go -C bench run . -scenario sustained -store postgres -wire batched -json $(CURDIR)/$(BIN)/bench-10k.json

bench-50k: ## ten seconds of 50,000 submissions a second on PostgreSQL
	@go -C bench run . -scenario spike -store postgres -wire batched -json $(CURDIR)/$(BIN)/bench-50k.json

CHAOS_SECONDS ?= 300
CHAOS_STORE ?= postgres
CHAOS_RATE ?= 800

chaos: ## kill everything in every way under load, and close the books (CHAOS_SECONDS, CHAOS_STORE, CHAOS_RATE or CHAOS_OVER, CHAOS_SEED)
	@mkdir -p $(BIN); go -C bench build -o ../$(BIN)/chaos ./chaos
	@$(BIN)/chaos -store $(CHAOS_STORE) -seconds $(CHAOS_SECONDS) $(if $(CHAOS_OVER),-over $(CHAOS_OVER),-rate $(CHAOS_RATE))

chaos-short: ## every fault of chaos once, on both stores
	$(call heading,every fault once)
	@mkdir -p $(BIN); go -C bench build -o ../$(BIN)/chaos ./chaos
	@for store in postgres sqlite; do $(BIN)/chaos -store $$store -seconds 1 -rate 200; done

# What `make test-all` has of chaos: the faults that the rest leans on, once each.
chaos-brief: ## a few faults of chaos, about a minute
	$(call heading,killed: a few faults on both stores)
	@mkdir -p $(BIN); go -C bench build -o ../$(BIN)/chaos ./chaos
	@$(BIN)/chaos -store postgres -seconds 1 -rate 100 -only kill-schedulers,kill-agents,kill-nats,kill-postgres,half-postgres,kill-stream-leader
	@$(BIN)/chaos -store sqlite -seconds 1 -rate 100 -only kill-dev,full-dev
	@$(BIN)/chaos -store postgres -workload travel -seconds 1 -only kill-schedulers,kill-postgres
	@$(BIN)/chaos -store sqlite -workload payout -seconds 1 -only kill-dev

clean:
	rm -rf $(BIN)
