#!/usr/bin/env bash
# The long forms of what is done to jobs on purpose, and a report: tools/chaos.sh BUILD_FOLDER [SCALE]
#
# SCALE 1 (usual) takes about ten minutes on two cores; 0.1 a tenth of it. Correctness decides about the exit code. Times
# are judged too, beside what they should be, but a machine that others use misses them.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
build=${1:?usage: tools/chaos.sh BUILD_FOLDER [SCALE]}
scale=${2:-1}
tests=$build/tests/horo_integration_test
logs=$build/chaos
if [ ! -x "$tests" ]; then
  echo "chaos: $tests was not built; run: make build"
  exit 1
fi
mkdir -p "$logs"
failed=0
table=()

scaled() { awk -v n="$1" -v s="$scale" 'BEGIN { n = int(n * s); print (n < 1 ? 1 : n) }'; }

# row NAME SECONDS COMMAND...
row() {
  local name=$1 limit=$2 start=$SECONDS outcome=held
  shift 2
  echo "== $name"
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 || { outcome=BROKEN failed=1; }
  [ "$outcome" = held ] || grep -E "TEST_SEED|Failure|wrong |FAILED" "$logs/$name.log" | head -10
  grep -E "p50 [0-9]" "$logs/$name.log" | judge
  grep -E "^  [0-9]+ (partitions|jobs)|^planted:" "$logs/$name.log"
  table+=("$(printf '%-12s %-8s %5d s' "$name" "$outcome" $((SECONDS - start)))")
}

# A line of percentiles names its aims behind them: "p50 3.2 ms, ... (aim: p50 10, p99 50)".
judge() {
  awk '{
    verdict = ""
    if (split($0, parts, "aim") == 2) {
      verdict = "  met"
      n = split("p50 p99 max", which, " ")
      for (i = 1; i <= n; ++i) {
        if (match(parts[2], which[i] " [0-9.]+") == 0) continue
        aim = substr(parts[2], RSTART + 4, RLENGTH - 4) + 0
        if (match(parts[1], which[i] " [0-9.]+") && substr(parts[1], RSTART + 4, RLENGTH - 4) + 0 > aim) verdict = "  NOT MET"
      }
    }
    print $0 verdict
  }'
}

row kills 1800 env TEST_KILLS="$(scaled 2000)" "$tests" --gtest_filter='KillStorm.*'
row mixed 900 env TEST_MIXED=1 TEST_KILLS="$(scaled 500)" "$tests" --gtest_filter='KillStorm.*'
row reform 1800 env TEST_STORMS="$(scaled 2000)" "$tests" --gtest_filter='ReformStorm.Survivors*'
row leaders 900 env TEST_LEADERS="$(scaled 200)" "$tests" --gtest_filter='ReformStorm.Whoever*'
row failpoints 900 "$tests" --gtest_filter='Failpoints.*' --gtest_repeat="$(scaled 10)"
row freezes 1800 "$tests" --gtest_filter='*Freeze.A*:*Thaw.*:Reform.*' --gtest_repeat="$(scaled 20)"
row partitions 600 "$tests" --gtest_filter='Partition.*' --gtest_repeat="$(scaled 10)"
row garbage 900 env TEST_STRINGS="$(scaled 100000)" "$tests" --gtest_filter='Garbage.AtEvery*'
row leaks 900 env TEST_STARTS="$(scaled 1000)" "$tests" --gtest_filter='Leak*'
row soak 1800 tools/soak.sh "$(scaled 60)" "$build"
row cuts 1800 env TEST_PARTITIONS="$(scaled 100000)" "$build/sim/horo_sim_test" --gtest_filter='SimulatedPartition.*'
row simulator 900 "$build/sim/horo_sim_test" --gtest_repeat="$(scaled 20)"
row planted 3600 tools/planted.py

echo
echo "what was done  outcome  took"
printf '%s\n' "${table[@]}"
echo "logs: $logs"
exit $failed
