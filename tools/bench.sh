#!/usr/bin/env bash
# Runs the benchmarks of a build folder: the modules' own (horo_*_bench), the kernels' (bench_kernel_bench), then what
# compares horo with its peers (bench/report.sh).
set -euo pipefail
build=$1
found=0
for program in "$build"/horo_*_bench "$build"/bench/bench_kernel_bench; do
  [ -x "$program" ] || continue
  found=1
  echo "== $(basename "$program")"
  "$program" --benchmark_min_time=0.1
done
if [ -x "$build/bin/horo" ]; then
  found=1
  bench/report.sh "$build"
fi
if [ $found = 0 ]; then
  echo "bench: nothing to measure in $build"
  exit 1
fi
