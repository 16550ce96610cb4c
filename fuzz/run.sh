#!/bin/sh
# Fuzzes one target for a while: fuzz/run.sh TARGET SECONDS. What it finds goes on from last time;
# inputs that crash are kept in target/fuzz/found/TARGET.
set -eu
target=$1 seconds=$2
cd "$(dirname "$0")"
out=../target/fuzz
machine=$(rustc -vV | sed -n 's/^host: //p')
cargo run --release --locked --target-dir $out --bin seeds -- $out/corpus
# The counters and comparisons that libFuzzer follows.
RUSTFLAGS="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
 -Cllvm-args=-sanitizer-coverage-level=4 \
 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
 -Cllvm-args=-sanitizer-coverage-pc-table \
 -Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --release --locked --target "$machine" --target-dir $out --bin "$target"
mkdir -p $out/found/"$target"
exec $out/"$machine"/release/"$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -malloc_limit_mb=512 -print_final_stats=1 \
    -artifact_prefix=$out/found/"$target"/ $out/corpus/"$target"
