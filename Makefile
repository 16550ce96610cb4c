# The one tool beside cargo. `make` lists the targets.

CARGO    ?= cargo
FIRN      = target/release/firn
SCRIPTS  ?= tests/promql
# Scripts of $(SCRIPTS) to run, without .test; all of them if empty.
FILES    ?=
ROUNDS   ?= 300
SEEDS    ?= 5000
# What `make fuzz` fuzzes, of fuzz/targets, and for how long.
TARGET   ?= page
SECONDS  ?= 60
# What the benchmark runs: --short and --ablation take three minutes, --churn ten, --full long.
BENCH    ?= --short

.PHONY: help run build dist test check interleavings bench soak fuzz conformance answers install

help:
	@echo "make run          build Firn and start it at http://127.0.0.1:9090, scraping itself"
	@echo "make dist         build what packages ship: slower to build, a little faster to run"
	@echo "make test         install what the tests need and run everything"
	@echo "make check        the part of the tests that needs cargo alone"
	@echo "make interleavings  the orders of threads in the store, tried by seed"
	@echo "make bench        Firn beside Prometheus and VictoriaMetrics (BENCH=--full, --churn, --ablation or --scrape)"
	@echo "make soak         the crash tests and simulations at length (ROUNDS=$(ROUNDS) SEEDS=$(SEEDS))"
	@echo "make fuzz         coverage-guided fuzzing of TARGET=$(TARGET) for SECONDS=$(SECONDS)"
	@echo "make conformance  run the PromQL scripts of SCRIPTS=DIR (FILES='a b' for some of them)"
	@echo "make answers      record the judged answers anew from PLAIN=http://... (no features), FULL=http://... and"
	@echo "                  STARTS=http://... (what each must be: tests/answers/record.rs)"

run: build
	$(FIRN) serve

build:
	$(CARGO) build --release --locked -p firn-firn

install:
	sh tests/install/debian.sh

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) test --workspace --locked

# A flag of the compiler for all crates, hence a folder of its own.
interleavings:
	RUSTFLAGS="--cfg shuttle" $(CARGO) test --locked -p firn-storage --lib \
		--target-dir target/interleavings interleavings

test: install build check interleavings
	$(MAKE) conformance SCRIPTS=tests/promql

# Linked as one piece: what packages ship and what figures are taken of.
dist:
	$(CARGO) build --profile dist --locked -p firn-firn

bench: dist
	$(CARGO) run --profile dist --locked -p firn-mirror --bin firn-bench -- $(BENCH)

soak: build
	FIRN_SEEDS=$(SEEDS) $(CARGO) test --release --locked -p firn-storage -p firn-wire -p firn-promql
	FIRN_CRASH_ROUNDS=$(ROUNDS) $(CARGO) test --release --locked -p firn-firn --test crash -- --nocapture

fuzz:
	sh fuzz/run.sh $(TARGET) $(SECONDS)

conformance: build
	$(FIRN) test promql $(if $(FILES),$(FILES:%=$(SCRIPTS)/%.test),$(wildcard $(SCRIPTS)/*.test))

answers:
	$(if $(PLAIN),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record plain $(PLAIN))
	$(if $(FULL),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record full $(FULL))
	$(if $(STARTS),$(CARGO) run --release --locked -p firn-mirror --bin firn-answers -- record starts $(STARTS))
