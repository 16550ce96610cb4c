# The one tool beside cargo. `make` lists the targets.

CARGO    ?= cargo
# The binary that `run` and `conformance` start. The tests compile target/debug/firn.
FIRN     ?= target/release/firn
# Folders of the PromQL scripts that `conformance` runs: Firn's own, and those of Prometheus.
SCRIPTS  ?= tests/promql tests/promql/prometheus
ROUNDS   ?= 300
# Bucket of `make cluster`: a folder (file), or one behind an S3 server (s3).
BUCKET   ?= file
SEEDS    ?= 5000
# Target of `make fuzz`, a file of fuzz/targets, and its duration.
TARGET   ?= page
SECONDS  ?= 60
# Version, architecture and output folder of `make package`.
VERSION   = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
ARCH     ?= $(shell dpkg --print-architecture)
PACKAGES ?= target/package
# What the benchmark runs: --short and --ablation take three minutes, --churn and "--history --short" ten,
# --full and --history long.
BENCH    ?= --short

# Clippy is the compiler of the workspace, so that lints, tests, scripts and interleavings share one
# build. Cargo.toml sets the lints. Cargo runs as many compilers as there are cores, whatever the lanes of make.
LINTED    = MAKEFLAGS= RUSTC_WORKSPACE_WRAPPER=clippy-driver $(CARGO)

# Two lanes: unit tests, which compute on one thread, beside black-box tests, which mostly wait for
# servers.
LANES     = $(MAKE) --jobs=2 --output-sync=target

.PHONY: help run build ui dist package test format compile check inside inside-browser outside page sources browser \
	budgets interleavings bench soak figures fuzz conformance answers install programs cluster target/release/firn \
	target/debug/firn

help:
	@echo "make run          build Firn and start it at http://127.0.0.1:9090, scraping itself"
	@echo "make cluster      build Firn and start three nodes on a bucket, with a load (BUCKET=s3: over versitygw)"
	@echo "make ui           build the web page into ui/dist, which the binary contains (needs Node 20.19 or later)"
	@echo "make dist         build the binary that packages ship: slower to build, 2 to 8 % faster queries"
	@echo "make package      build a Debian package and a tarball of that binary in $(PACKAGES)"
	@echo "make test         install what the tests need and run everything"
	@echo "make check        run formatting checks, lints, tests and PromQL scripts, without installing anything"
	@echo "make page         check the web page, compare ui/dist with its sources, and run the page in Chromium"
	@echo "make budgets      measure the web page in Chromium against its budgets, on a quiet machine"
	@echo "make interleavings  test thread schedules of the store by seed"
	@echo "make bench        measure Firn beside Prometheus and VictoriaMetrics (BENCH=--full, --churn, --history, --rules,"
	@echo "                  --reads, --create, --ablation, --cluster, --doors or --scrape)"
	@echo "make soak         run the crash tests and simulations at length (ROUNDS=$(ROUNDS) SEEDS=$(SEEDS))"
	@echo "make fuzz         fuzz TARGET=$(TARGET) for SECONDS=$(SECONDS), guided by coverage"
	@echo "make figures      count lines, import cycles, long functions, unsafe code and duplicates (FIRN_ROOT=DIR for another checkout)"
	@echo "make conformance  run the PromQL scripts, or those in the folders SCRIPTS"
	@echo "make answers      record the expected answers again from PLAIN=http://... (no features), FULL=http://...,"
	@echo "                  STARTS=http://..., REQUESTS=http://... and FILLED=http://...; tests/answers/record.rs"
	@echo "                  describes the servers"

run: build
	target/release/firn serve

# Ctrl-C stops the nodes, the load and the store.
cluster: $(FIRN)
	sh deploy/cluster/run.sh $(abspath $(FIRN)) $(BUCKET)

build:
	$(CARGO) build --release --locked -p firn-firn

# The page's files are in the repository, so that building Firn needs no Node.
ui:
	sh tests/install/node.sh
	npm --prefix ui ci
	npm --prefix ui run build

page: sources target/debug/firn
	$(MAKE) browser

# Another build must have the same bytes as the files in the repository.
sources:
	sh tests/install/node.sh
	npm --prefix ui ci
	npm --prefix ui run check
	npm --prefix ui test
	npm --prefix ui run build -- --outDir ../target/page --emptyOutDir
	diff --recursive ui/dist target/page || { echo "ui/dist differs from a build of its sources: run make ui" >&2; exit 1; }

browser:
	npm --prefix ui run browser

budgets: target/debug/firn
	npm --prefix ui ci
	npm --prefix ui run budgets

install:
	sh tests/install/debian.sh

programs:
	sh tests/install/programs.sh

format:
	$(CARGO) fmt --all --check

compile:
	$(LINTED) test --workspace --all-targets --locked --no-run

check: format compile
	$(LANES) inside outside
	$(MAKE) conformance FIRN=target/debug/firn

inside: interleavings
	RUST_TEST_THREADS=1 $(LINTED) test --workspace --lib --bins --locked
	$(LINTED) test --workspace --doc --locked

outside: compile
	$(LINTED) test --workspace --test '*' --locked

interleavings: compile
	$(LINTED) test --workspace --bench interleavings --locked interleavings

# Downloads of the page's packages and the build of programs in Go run beside the compiler, which often uses one
# core; the browser follows the unit tests, whose lane ends first.
test: install format
	$(LANES) compile sources programs
	$(LANES) inside-browser outside
	$(MAKE) conformance FIRN=target/debug/firn

inside-browser: inside
	$(MAKE) browser

# Only these builds embed the commit. Other builds do not, so that a commit recompiles nothing.
dist bench: export FIRN_REVISION ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)

# Linked as one piece: packages ship this binary, and benchmarks measure it.
dist:
	$(CARGO) build --profile dist --locked -p firn-firn

package: dist
	sh deploy/package/build.sh target/dist/firn $(VERSION) $(ARCH) $(PACKAGES)
	if command -v lintian >/dev/null; then lintian $(PACKAGES)/firn_$(VERSION)_$(ARCH).deb; fi

bench: dist
	$(CARGO) run --profile dist --locked -p firn-mirror --bin firn-bench -- $(BENCH)

soak: build
	FIRN_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p firn-storage -p firn-wire -p firn-promql -p firn-ingest -p firn-server
	FIRN_MODEL=large FIRN_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p firn-cluster
	FIRN_CRASH_ROUNDS=$(ROUNDS) $(CARGO) test --release --locked -p firn-firn --test crash -- --nocapture
	FIRN_CRASH_ROUNDS=$(ROUNDS) FIRN_CRASH_BUCKET=s3 $(CARGO) test --release --locked -p firn-firn --test crash \
		cluster_with_failing_nodes_keeps -- --nocapture

figures:
	$(CARGO) bench --locked -p firn-firn --profile dev --bench figures

fuzz:
	sh fuzz/run.sh $(TARGET) $(SECONDS)

target/release/firn: build

target/debug/firn: compile

# Firn's own scripts and those of Prometheus, also on three stores that divide the series as the partitions of a
# cluster do.
conformance: $(FIRN)
	$(FIRN) test promql $(wildcard $(SCRIPTS:%=%/*.test))
	$(FIRN) test promql --partitions 3 $(wildcard $(SCRIPTS:%=%/*.test))

answers:
	$(if $(PLAIN),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record plain $(PLAIN))
	$(if $(FULL),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record full $(FULL))
	$(if $(STARTS),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record starts $(STARTS))
	$(if $(REQUESTS),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record requests $(REQUESTS))
	$(if $(FILLED),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record filled $(FILLED))
