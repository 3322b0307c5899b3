#!/usr/bin/env bash
# Runs the benchmarks of a build folder: the kernels' and modules' own (horo_*_bench), then `horo bench` with all peers.
set -euo pipefail
build=$1
found=0
for program in "$build"/horo_*_bench; do
  [ -x "$program" ] || continue
  found=1
  echo "== $(basename "$program")"
  "$program" --benchmark_min_time=0.1
done
if [ -x "$build/bin/horo" ]; then
  found=1
  "$build/bin/horo" bench allreduce -np 2 --sizes 4,1K,64K,1M,16M,64M --dtype f32 --peers gloo,openmpi \
    --json "$build/bench.json"
fi
if [ $found = 0 ]; then
  echo "bench: nothing to measure in $build"
  exit 1
fi
