# The one tool beside cargo. `make` lists the targets.

CARGO    ?= cargo
# What `run` and `conformance` start; target/debug/firn is what the tests compile.
FIRN     ?= target/release/firn
SCRIPTS  ?= tests/promql
# Scripts of $(SCRIPTS) to run, without .test; all of them if empty.
FILES    ?=
ROUNDS   ?= 300
SEEDS    ?= 5000
# What `make fuzz` fuzzes, of fuzz/targets, and for how long.
TARGET   ?= page
SECONDS  ?= 60
# What `make package` writes: packages of this version for this machine.
VERSION   = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
ARCH     ?= $(shell dpkg --print-architecture)
PACKAGES ?= target/package
# What the benchmark runs: --short and --ablation take three minutes, --churn and "--history --short" ten,
# --full and --history long.
BENCH    ?= --short

# Clippy as the compiler of the workspace: what it has read it also compiles, so that tests, scripts
# and interleavings reuse one build. Lints stand in Cargo.toml.
LINTED    = RUSTC_WORKSPACE_WRAPPER=clippy-driver $(CARGO)

.PHONY: help run build dist package test format compile check inside outside interleavings bench soak figures fuzz \
	conformance answers install target/release/firn target/debug/firn

help:
	@echo "make run          build Firn and start it at http://127.0.0.1:9090, scraping itself"
	@echo "make dist         build what packages ship: slower to build, a little faster to run"
	@echo "make package      a Debian package and an archive of that build, in $(PACKAGES)"
	@echo "make test         install what the tests need and run everything"
	@echo "make check        the part of the tests that needs cargo alone: formatting, lints, tests"
	@echo "make interleavings  the orders of threads in the store, tried by seed"
	@echo "make bench        Firn beside Prometheus and VictoriaMetrics (BENCH=--full, --churn, --history, --rules, --reads, --create, --ablation, --doors or --scrape)"
	@echo "make soak         the crash tests and simulations at length (ROUNDS=$(ROUNDS) SEEDS=$(SEEDS))"
	@echo "make fuzz         coverage-guided fuzzing of TARGET=$(TARGET) for SECONDS=$(SECONDS)"
	@echo "make figures      lines, circles, long functions, unsafe, repeated stretches (FIRN_ROOT=DIR for another checkout)"
	@echo "make conformance  run the PromQL scripts of SCRIPTS=DIR (FILES='a b' for some of them)"
	@echo "make answers      record the judged answers anew from PLAIN=http://... (no features), FULL=http://...,"
	@echo "                  STARTS=http://..., REQUESTS=http://... and FILLED=http://... (what each must be:"
	@echo "                  tests/answers/record.rs)"

run: build
	target/release/firn serve

build:
	$(CARGO) build --release --locked -p firn-firn

install:
	sh tests/install/debian.sh

format:
	$(CARGO) fmt --all --check

compile:
	$(LINTED) test --workspace --all-targets --locked --no-run
	$(LINTED) test -p firn-storage --features shuttle --lib --locked --no-run
	$(CARGO) check --manifest-path fuzz/Cargo.toml --bins --locked --target-dir target/fuzz

# Two lanes: what computes, on one thread, beside what mostly waits for servers.
check: format compile
	$(MAKE) --jobs=2 --output-sync=target inside outside

inside: interleavings
	RUST_TEST_THREADS=1 $(LINTED) test --workspace --lib --bins --locked

outside: compile
	$(LINTED) test --workspace --test '*' --locked

interleavings: compile
	$(LINTED) test -p firn-storage --features shuttle --lib --locked interleavings

test: install check
	$(MAKE) conformance SCRIPTS=tests/promql FIRN=target/debug/firn

# The program with all of its time spent on linking names its commit; other builds do not, so that a
# commit compiles nothing again.
dist bench: export FIRN_REVISION ?= $(shell git rev-parse --short=12 HEAD 2>/dev/null)

# Linked as one piece: what packages ship and what figures are taken of.
dist:
	$(CARGO) build --profile dist --locked -p firn-firn

package: dist
	sh deploy/package/build.sh target/dist/firn $(VERSION) $(ARCH) $(PACKAGES)
	if command -v lintian >/dev/null; then lintian $(PACKAGES)/firn_$(VERSION)_$(ARCH).deb; fi

bench: dist
	$(CARGO) run --profile dist --locked -p firn-mirror --bin firn-bench -- $(BENCH)

soak: build
	FIRN_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p firn-storage -p firn-wire -p firn-promql
	FIRN_CRASH_ROUNDS=$(ROUNDS) $(CARGO) test --release --locked -p firn-firn --test crash -- --nocapture

figures:
	$(CARGO) bench --locked -p firn-firn --profile dev --bench figures

fuzz:
	sh fuzz/run.sh $(TARGET) $(SECONDS)

target/release/firn: build

target/debug/firn: compile

conformance: $(FIRN)
	$(FIRN) test promql $(if $(FILES),$(FILES:%=$(SCRIPTS)/%.test),$(wildcard $(SCRIPTS)/*.test))

answers:
	$(if $(PLAIN),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record plain $(PLAIN))
	$(if $(FULL),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record full $(FULL))
	$(if $(STARTS),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record starts $(STARTS))
	$(if $(REQUESTS),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record requests $(REQUESTS))
	$(if $(FILLED),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record filled $(FILLED))
