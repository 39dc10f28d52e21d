# Everything here requires Go and a POSIX shell, TypeScript targets require Node 20, and docs/api
# requires Python 3.11 with pip. Targets fetch everything else through apt-get, pip, npm, Maven and
# the Go module proxy, as configured on the machine.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
# Flags for `parleyd dev`, as in: make dev ARGS='--listen 127.0.0.1:9000'
ARGS ?=
# Flags for the fleet, as in: make fleet FLEET_ARGS='--nodes 5 --dir /tmp/fleet'
FLEET_ARGS ?=
# The packages of `make test-go` and `make quick`, by default those of all modules of go.work, and their additional flags for
# `go test`.
PKG ?= ./... ./gen/go/... ./sdk/go/...
TESTFLAGS ?=
# Each test package may run one to three mongods, so few packages run at once. The slowest takes
# minutes on two cores.
TEST_PARALLEL ?= 2
TEST_TIMEOUT ?= 35m
# The benchmarks of `make bench`, the targets of `make fuzz`, and the time for each fuzz target.
BENCH ?= .
COUNT ?= 1
FUZZ ?= .
FUZZTIME ?= 60s
# The maximum size of bin/parley in bytes.
PARLEY_MAX_BYTES ?= 22500000
# A revision that `make check-proto` compares the protos with, besides the baselines and the newest
# release.
AGAINST ?=

# buf's module cache. hack/seed-buf-cache.sh fills it instead of the network.
export BUF_CACHE_DIR := $(CURDIR)/.cache/buf

# npm warns about settings of the machine.
export npm_config_loglevel := error

# The tools have modules of their own, which are not in go.work. golangci-lint itself runs in the workspace, so its module is
# left before it starts: -n builds it and prints its path.
BUF := env GOWORK=off $(GO) tool -modfile=tools/go.mod buf
GOLANGCI := $$(GOWORK=off $(GO) tool -modfile=tools/lint/go.mod -n golangci-lint)

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "  %-16s %s\n", $$1, $$2 }'

.PHONY: dev
dev: build ## Build, then run a whole server with nothing else installed (ARGS='--listen ...')
	@exec bin/parleyd dev $(ARGS)

.PHONY: fleet
fleet: build test-deps ## Run three nodes on a MongoDB set, Redis and a NATS cluster (FLEET_ARGS='--dir ... --env ...', or --help)
	@$(GO) build -o bin/fleet ./hack/fleet
	@exec bin/fleet --binary bin/parleyd $(FLEET_ARGS)

.PHONY: build
build: ## Build bin/parleyd, bin/parley and bin/parley-bench, without symbol tables
	$(GO) build -ldflags '-s -w' -o bin/ ./server/cmd/parleyd ./clients/cli/parley ./bench/cmd/parley-bench

.PHONY: page
page: node-deps ## Build the web pages into clients/pages/dist, which is committed
	npm run --silent build -w clients/pages

.PHONY: test
test: test-go test-ts test-page ## Run every test, with a real Redis, NATS, MongoDB and Chromium

.PHONY: test-go
test-go: interop-deps ## Run the tests in Go, with the race detector (PKG=./... TESTFLAGS=...)
	$(GO) test -race -shuffle=on -timeout=$(TEST_TIMEOUT) -p=$(TEST_PARALLEL) $(TESTFLAGS) $(PKG)

.PHONY: test-ts
test-ts: node-deps ## Run the tests in TypeScript
	npm run --silent test

.PHONY: test-page
test-page: test-deps build ## Run the web pages in Chromium (ARGS='-g "two tabs"' for less)
	npx playwright test -c clients/pages/e2e $(ARGS)

.PHONY: test-deps
test-deps: node-deps ## Set up what the tests need: a C compiler, redis-server, mongod, Chromium, npm's packages
	@hack/test-deps.sh

.PHONY: interop-deps
interop-deps: node-deps ## Set up the same, and what the tests with other clients need: a JDK, Maven, packages in Python, Node and Java
	@hack/test-deps.sh interop

.PHONY: node-deps
node-deps: # npm's packages, and the TypeScript SDK built
	@hack/node-deps.sh

.PHONY: node-packages
node-packages:
	@hack/node-deps.sh packages

.PHONY: quick
quick: node-deps ## Run the short tests, for use while working
	$(GO) test -short -timeout=5m $(TESTFLAGS) $(PKG)

.PHONY: bench
bench: ## Run the benchmarks (BENCH=regexp COUNT=n)
	$(GO) test -run='^$$' -bench='$(BENCH)' -benchmem -count=$(COUNT) $(TESTFLAGS) $(PKG)

.PHONY: figures
figures: build test-deps ## Measure a fleet on this machine (ARGS='hot spread --rounds 3 --json', or --help)
	@$(GO) run ./hack/figures --binary bin/parleyd $(ARGS)

.PHONY: rivals
rivals: ## Build the other queues that `bin/parley bench queue --rivals hack/rivals` measures beside
	cd hack/rivals/asynq && GOWORK=off $(GO) build -o '$(CURDIR)/bin/rival-asynq' .
	# Not `npm ci`: it requires the packages of every platform in the lock file, which not every registry has.
	npm install --prefix hack/rivals/bullmq --no-save --no-audit --no-fund

# A directory of *.raw.txt logs, such as those of the irc-disentanglement corpus. It is not part of
# this repository.
DATA ?=
.PHONY: data
data:
	@[ -d '$(DATA)' ] || { echo "make: DATA='$(DATA)' is not a directory: name one with *.raw.txt logs, as in: make wordindex DATA=/path/to/logs" >&2; exit 1; }

.PHONY: irc
irc: $(if $(filter --help,$(ARGS)),,data) build test-deps ## Import IRC logs, edit each line five times, and compare all that subscribers, caches and pages have, under faults and retention (DATA=directory ARGS='--retain 500', or --help)
	@$(GO) run ./hack/irc --binary bin/parleyd '$(DATA)' $(ARGS)

.PHONY: sessions
sessions: $(if $(filter --help,$(ARGS)),,data) build test-deps ## Replay IRC logs as sessions with an assistant that streams, while answers are cancelled and generators, nodes and Redis fail (DATA=directory ARGS='--days 2', or --help)
	@$(GO) run ./hack/sessions --binary bin/parleyd '$(DATA)' $(ARGS)

.PHONY: budgets
budgets: test-deps ## Measure every row of docs/budgets.md (ARGS='-run TestCallsStayWithinTheirBudgets/queues' for less)
	PARLEY_TEST_BUDGETS=all $(GO) test -race -timeout 20m -v -run TestCallsStayWithinTheirBudgets ./server $(ARGS)

.PHONY: revocations
revocations: test-deps ## Check every state of the engines, and a million racing calls, around the revocation of tokens (ARGS=-race)
	PARLEY_TEST_REVOCATIONS=all $(GO) test -timeout 30m -v -run 'TestRevocationTable|TestRacingCalls|TestStoppedNode' ./server $(ARGS)

.PHONY: hostile
hostile: test-deps ## Send hostile input without the race detector, so with exact limits of processor time
	$(GO) test -timeout 20m -run Hostile ./server $(ARGS)

MODE ?= --deploys
SHORT ?=
.PHONY: wordindex
wordindex: $(if $(filter --help,$(ARGS)),,data) build test-deps ## Index IRC logs through a queue, with jobs of up to a minute, while the fleet is deployed and Redis stopped (DATA=directory, SHORT=1 for two minutes, ARGS='--seed 7'; MODE= ARGS='--rate 500' kills workers instead; or --help)
	@$(GO) build -o bin/wordindex ./examples/wordindex
	@$(GO) run ./hack/wordindex --binary bin/parleyd --program bin/wordindex $(MODE) $(if $(SHORT),--short) '$(DATA)' $(ARGS)

.PHONY: presence
presence: $(if $(filter --help,$(ARGS)),,data) build test-deps ## Replay who is online in IRC logs on three nodes, where half of the users sign out, while nodes, Redis and NATS fail (DATA=directory ARGS='--speed 200', or --help)
	@$(GO) run ./hack/presence --binary bin/parleyd '$(DATA)' $(ARGS)

.PHONY: soak
soak: $(if $(filter --help,$(ARGS)),,build test-deps) ## Run a server under steady load for 30 minutes; what must not grow, such as its heap, must not (ARGS='--for 10m', or --help)
	@$(GO) run ./hack/soak --binary bin/parleyd $(ARGS)

DAY ?= 2013-05-19
SPEED ?= 60
.PHONY: day
day: data build test-deps ## Replay a day of IRC into the chat page in Chromium while the server is killed (DATA=directory DAY=date SPEED=times)
	DATA='$(DATA)' DAY='$(DAY)' SPEED='$(SPEED)' npx playwright test -c hack/day

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME (FUZZ=regexp)
	@hack/fuzz.sh '$(FUZZ)' '$(FUZZTIME)'

.PHONY: chaos
chaos: test-deps ## Inject faults into a fleet for twenty minutes and check what its users observed (ARGS='-short -seed 7', or -help)
	@$(GO) build -o bin/chaos ./chaos/cmd/chaos
	@exec bin/chaos -v $(ARGS)

.PHONY: mutants
mutants: test-deps ## Run servers with one defect each, and controls; chaos must catch each defect by the promise that it breaks (ARGS='-mutants name,name' for less)
	@$(GO) build -o bin/chaos ./chaos/cmd/chaos
	@exec bin/chaos -mutants all $(ARGS)

.PHONY: test-mutants
test-mutants: test-deps ## Break the code in one place at a time; the tests that are named for it must fail (ARGS='name name' for less)
	@$(GO) run ./hack/mutants $(ARGS)

.PHONY: generate
generate: buf-cache node-packages ## Format the protos and generate gen/ and docs/api from them
	$(BUF) format -w
	$(BUF) generate
	$(BUF) generate --template buf.gen.cluster.yaml
	@hack/api-docs.sh docs/api $(BUF)

.PHONY: protos
protos: buf-cache ## Make bin/protos and bin/parley-protos.zip, the protos for plain protoc
	@mkdir -p bin
	$(BUF) generate --template buf.gen.protos.yaml

.PHONY: baseline
baseline: buf-cache ## On a release: make the current protos the baseline for compatibility checks
	@hack/move-baseline.sh $(BUF)

.PHONY: tidy
tidy: ## Run `go mod tidy` in every module
	@hack/tidy.sh

.PHONY: release
release: ## On a release: name it in every go.mod, and print what to do next (VERSION=v0.1.0)
	@hack/release.sh '$(VERSION)'

.PHONY: check
check: check-tidy check-modules check-generate check-proto check-vet lint check-prose check-tools check-size check-ts check-page ## Run all checks that need no running server

.PHONY: lint
lint: ## Run the linters and formatters; PKG=./server/internal/feed/... for less
	$(GOLANGCI) run $(PKG)

.PHONY: fix
fix: node-deps ## Format all code, and apply the automatic fixes of the linters
	$(GOLANGCI) run --fix $(PKG)
	$(BUF) format -w
	npx biome check --write

.PHONY: check-vet
check-vet: # go vet; also compiles every package and test
	$(GO) vet $(PKG)
	cd hack/rivals/asynq && GOWORK=off $(GO) vet ./...

# The files whose language is checked. tools/prose/rules.go has the phrases that it finds.
PROSE ?= '*.go' '*.md' '*.proto' 'sdk/ts/src/*.ts' 'clients/pages/src/*.ts' 'clients/pages/src/*.tsx' \
	':!docs/api' ':!hack/apidocs' ':!tools/prose/rules.go' ':!server/internal/queue' ':!server/internal/store/redisqueue'
.PHONY: check-prose
check-prose: # the language of comments, messages and documents (PROSE=server/internal/feed for less)
	GOWORK=off $(GO) build -C tools -o ../bin/prose ./prose
	@git -c core.quotepath=off ls-files -co --exclude-standard -- $(PROSE) | tr '\n' '\0' | xargs -0 bin/prose

.PHONY: check-tools
check-tools: # the code of the tools' module
	cd tools && GOWORK=off $(GO) vet ./...
	cd tools && GOWORK=off $(GO) test ./...
	cd tools && GOWORK=off $(GO) tool -modfile=lint/go.mod golangci-lint run ./...

.PHONY: check-size
check-size: build # bin/parley stays small: every import is linked in whole
	@[ "$$(wc -c < bin/parley)" -le $(PARLEY_MAX_BYTES) ] || \
		{ echo "make: bin/parley has $$(wc -c < bin/parley) bytes, more than $(PARLEY_MAX_BYTES)" >&2; exit 1; }

.PHONY: check-ts
check-ts: node-deps # formatting, linters and types of the TypeScript code, and the contents of the SDK's package
	npm run --silent lint
	npm run --silent typecheck
	npx publint --strict sdk/ts

.PHONY: check-page
check-page: node-deps # clients/pages/dist matches the build of its source
	@hack/check-page.sh

.PHONY: check-tidy
check-tidy: # each go.mod and go.sum matches the imports
	@hack/tidy.sh -diff

.PHONY: check-modules
check-modules: # a release of this tree would install, and its Go SDK brings few modules
	@hack/check-modules.sh

.PHONY: check-generate
check-generate: buf-cache node-packages # gen/ and docs/api match the output generated from the protos
	@hack/check-generate.sh $(BUF)

.PHONY: check-proto
check-proto: buf-cache # the protos are formatted, lint clean, and break no client of the baseline
	$(BUF) format --diff --exit-code
	$(BUF) lint
	@hack/check-breaking.sh '$(AGAINST)' $(BUF)

.PHONY: buf-cache
buf-cache:
	@hack/seed-buf-cache.sh

.PHONY: tools
tools: ## Build bin/buf and bin/grpcurl
	GOWORK=off $(GO) build -modfile=tools/go.mod -o bin/ github.com/bufbuild/buf/cmd/buf github.com/fullstorydev/grpcurl/cmd/grpcurl

.PHONY: clean
clean: ## Remove built and fetched files; the data directory is kept
	rm -rf bin .cache node_modules sdk/ts/dist test-results
