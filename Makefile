# make help lists the targets. The gate for every commit is `make ci`.

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 1m
COUNT       ?= 50
HOURS       ?= 8
BENCH       ?= # make bench BENCH=-quick: the aims about rates, in eight minutes

.PHONY: help test full processes storm attack survival mutants torture race vet lint cross quickstart browser screenshots recording ci bench fuzz stress kills deploy release

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

test: ## run all tests, the giant ones cut short
	go test ./...

full: ## run all tests with all their rounds
	WARDMOTE_FULL=1 go test -timeout 20m ./...

processes: ## run all tests of real processes with all their rounds, and print the times
	WARDMOTE_FULL=1 go test -count=1 -timeout 20m -v ./internal/processes

STORM ?= 10m
storm: ## random faults in towns of real processes for STORM (10m), judged by their recordings (Linux, root)
	WARDMOTE_STORM=$(STORM) go test -count=1 -timeout 0 -v ./internal/storm

attack: ## attack real processes in each mode, print the matrix and the figures under attack
	WARDMOTE_ATTACK=all go test -count=1 -timeout 40m -v ./internal/attack

kills: ## kill -9 processes that write to each kind of store, 1,000 times each
	WARDMOTE_KILLS=1000 go test -count=1 -timeout 60m -v -run TestAKilledProcessLosesNothingAcknowledged ./internal/raftstore

mutants: ## plant bugs one by one, and see a test fail for each
	go test -tags mutants -count=1 -timeout 180m -parallel 2 -v ./internal/mutants

torture: ## look for broken promises for HOURS (8) with fresh seeds; goes on where it was: see CONTRIBUTING
	go run ./internal/torture -hours $(HOURS) -dir torture-results

race: ## run all tests under the race detector (needs a C compiler)
	go test -race -exec 'env GOMAXPROCS=1' -timeout 20m ./... # one thread: see .ci/run

vet: ## gofmt and go vet
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt -w is due:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags mutants ./internal/mutants

lint: ## staticcheck, at the version that CI uses
	go run $(STATICCHECK) ./...

deploy: ## play the manifests for Kubernetes with real processes (Linux, root; takes four minutes)
	DEPLOY_PLAYS=. bash .ci/run deploy

cross: ## build for every system and architecture we promise
	bash .ci/run cross

quickstart: ## run the README's program by itself and check its verdict
	bash .ci/run quickstart

browser: ## test the page in a headless Chromium
	bash .ci/run browser

screenshots: ## test the page, and write the pictures of docs/page.md
	cd internal/browser && go test -count=1 -run '^TestTown$$' -screenshots $(CURDIR)/docs/img .

recording: ## record the quickstart anew for the README (Linux; takes half a minute)
	go run ./examples/quickstart/recording -o docs/quickstart.svg

ci: ## everything that CI runs, as CI runs it
	bash .ci/run

release: ## the command for every system, in dist/, after a check that two clones give the same bytes
	WARDMOTE_RELEASE=1 go test -count=1 ./internal/release
	go run ./internal/release -o dist

bench: ## compare with etcd, ZooKeeper and Redis, as far as they are there; takes about forty minutes
	cd internal/bench && go run . -o ../../docs/benchmark.md $(BENCH)
	go test -count=1 ./docs -run Figures -rewrite-figures

fuzz: ## each fuzz target for FUZZTIME (1m)
	FUZZTIME=$(FUZZTIME) bash .ci/run fuzz

stress: ## all tests COUNT (50) times under the race detector; takes long
	go test -race -exec 'env GOMAXPROCS=1' -count=$(COUNT) -timeout 0 ./...

survival: ## random faults in 500 bubbles for each kind of deployment; takes hours
	WARDMOTE_SURVIVAL=500 GOMAXPROCS=1 go test -cpu 1 -count=1 -timeout 0 -v -run TestRandomKillsNeverEndACluster ./locks
