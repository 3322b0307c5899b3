#!/usr/bin/env bash
# Runs every fuzzer of a build folder for a while: tools/fuzz.sh build/fuzz SECONDS. Corpora are kept in
# .cache/corpus; those in tests/corpus are where a fuzzer begins.
set -euo pipefail
build=$1
seconds=$2
found=0
for program in "$build"/horo_*_fuzz; do
  [ -x "$program" ] || continue
  found=$((found + 1))
  corpus=.cache/corpus/$(basename "$program")
  seeds=tests/corpus/$(basename "$program")
  mkdir -p "$corpus" "$seeds"
  echo "== $(basename "$program") for $seconds s"
  "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 "$corpus" "$seeds"
done
echo "fuzz: $found fuzzers ran"
