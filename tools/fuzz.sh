#!/usr/bin/env bash
# Runs every fuzzer of a build folder: tools/fuzz.sh build/fuzz SECONDS (each, one after the other), or
# tools/fuzz.sh build/fuzz runs=N (each until it has tried N inputs, one per core at a time). Corpora are kept in
# .cache/corpus; those in tests/corpus are where a fuzzer begins.
set -euo pipefail
build=$1
amount=$2
limits=(-timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0)

# The corpora of a fuzzer, made if need be.
corpora() {
  local name=$1
  mkdir -p ".cache/corpus/$name" "tests/corpus/$name"
  echo ".cache/corpus/$name" "tests/corpus/$name"
}

fuzz_for_seconds() {
  local program name found=0
  for program in "$build"/horo_*_fuzz; do
    [ -x "$program" ] || continue
    found=$((found + 1))
    name=$(basename "$program")
    echo "== $name for $amount s"
    # shellcheck disable=SC2046
    "$program" -max_total_time="$amount" "${limits[@]}" $(corpora "$name")
  done
  echo "fuzz: $found fuzzers ran"
}

# One fuzzer, a line about it, and whether it held.
fuzz_inputs() {
  local program=$1 runs=$2 name tried log start=$SECONDS
  name=$(basename "$program")
  log=$build/$name.log
  # shellcheck disable=SC2046
  if ! "$program" -runs="$runs" -len_control=0 -max_len=4096 "${limits[@]}" $(corpora "$name") >"$log" 2>&1; then
    echo "$name FAILED: $(grep -m1 -E 'ERROR|SUMMARY' "$log"); see $log"
    return 1
  fi
  tried=$(awk '/stat::number_of_executed_units/ {print $2}' "$log")
  echo "$name: $tried inputs, no crash, $((SECONDS - start)) s"
  [ "$tried" -ge "$runs" ]
}

fuzz_runs() {
  export build
  export -f fuzz_inputs corpora
  export limits_text="${limits[*]}"
  # The slowest first.
  # shellcheck disable=SC2016
  find "$build" -maxdepth 1 -name 'horo_*_fuzz' -executable | sort -t_ -k3 |
    xargs -P "$(nproc)" -I{} bash -c 'read -ra limits <<<"$limits_text"; fuzz_inputs "$1" "$2"' _ {} "${amount#runs=}"
}

if [[ $amount == runs=* ]]; then fuzz_runs; else fuzz_for_seconds; fi
