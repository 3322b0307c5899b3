#!/usr/bin/env bash
# The long forms of what is done to jobs on purpose, and a report: tools/chaos.sh BUILD_FOLDER [SCALE]
#
# SCALE 1 (usual) takes about an hour and a half on two cores; 0.1 a tenth of it. Half of it is half an hour of too few
# cores and ten to twenty minutes of fuzzing. Correctness decides about the exit code. Times are judged too, beside what
# they should be, but a machine that others use misses them. ROWS="kills fuzz" runs those rows alone.
# shellcheck disable=SC2317  # Functions that row() starts through bash.
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
  [ -z "${ROWS:-}" ] || [[ " $ROWS " == *" $name "* ]] || return 0
  echo "== $name"
  timeout -k 10 "$limit" "$@" >"$logs/$name.log" 2>&1 || { outcome=BROKEN failed=1; }
  [ "$outcome" = held ] || grep -E "TEST_SEED|Failure|wrong |FAILED" "$logs/$name.log" | head -10
  grep -E "p50 [0-9]" "$logs/$name.log" | judge
  grep -hE "^  told: |inputs, no crash|ranks killed|given up$|^  [0-9]+ (partitions|jobs)|^planted:" "$logs/$name.log"
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

# skip NAME WHY
skip() {
  [ -z "${ROWS:-}" ] || [[ " $ROWS " == *" $1 "* ]] || return 0
  echo "== $1: left out: $2"
  table+=("$(printf '%-12s %-8s' "$1" "left out")")
}

# Plain and encrypted in the same run, in turns: what encryption leaves of the rate at 1 Gbit/s, and at others.
encryption() {
  local shape
  for shape in 1gbit 10gbit unshaped; do
    local words=(--json "$logs/encryption.json")
    [ "$shape" = unshaped ] || words+=(--shape "$shape")
    "$build/bin/horo" bench allreduce -n 2 --hosts 2 --sizes 16M --variant HORO_ENCRYPT=1 --rounds 7 --seconds 0.5 \
      "${words[@]}" || return 1
    python3 - "$logs/encryption.json" "$shape" <<'PYTHON'
import json, sys
times = {one["name"]: one["median_us"] for one in json.load(open(sys.argv[1]))["results"][0]["contenders"]}
share = 100 * times["horo"] / times["horo HORO_ENCRYPT=1"]
aim = " (aim: 95 %" + ("  met)" if share >= 95 else "  NOT MET)") if sys.argv[2] == "1gbit" else ""
print(f"  told: {sys.argv[2]}: encrypted at {share:.1f} % of plain{aim}")
PYTHON
  done
}

# 10^6 inputs for each parser. libFuzzer comes with clang.
fuzz() {
  local clang=$1
  cmake --preset fuzz -DCMAKE_C_COMPILER="$clang" -DCMAKE_CXX_COMPILER="${clang/clang/clang++}" >/dev/null &&
    cmake --build --preset fuzz --parallel "$(nproc)" && tools/fuzz.sh build/fuzz "runs=$(scaled 1000000)"
}

python=.venv/bin/python
endurance() { env TEST_ENDURANCE_SECONDS="$1" "$python" -m pytest -q -s tests/python/test_endurance.py -k "$2"; }
export -f endurance encryption fuzz scaled
export build logs scale python

row kills 1800 env TEST_KILLS="$(scaled 2000)" "$tests" --gtest_filter='KillStorm.*'
row mixed 900 env TEST_MIXED=1 TEST_KILLS="$(scaled 500)" "$tests" --gtest_filter='KillStorm.*'
row large 900 env TEST_VICTIM_MIB=4096 TEST_KILLS="$(scaled 40)" "$tests" --gtest_filter='KillStorm.*'
row reform 1800 env TEST_STORMS="$(scaled 2000)" "$tests" --gtest_filter='ReformStorm.Survivors*'
row leaders 900 env TEST_LEADERS="$(scaled 200)" "$tests" --gtest_filter='ReformStorm.Whoever*'
row failpoints 900 "$tests" --gtest_filter='Failpoints.*' --gtest_repeat="$(scaled 10)"
row freezes 1800 env TEST_THAWS="$(scaled 200)" "$tests" --gtest_filter='FreezeStorm.*'
row thaws 1800 "$tests" --gtest_filter='*Freeze.A*:*Thaw.*:Reform.*' --gtest_repeat="$(scaled 20)"
row partitions 600 "$tests" --gtest_filter='Partition.*' --gtest_repeat="$(scaled 10)"
row cable 1200 env TEST_FLIPS="$(scaled 1000)" TEST_CABLE_MS="$(scaled 10000)" "$tests" --gtest_filter='Cable.*'
row garbage 900 env TEST_STRINGS="$(scaled 100000)" "$tests" --gtest_filter='Garbage.AtEvery*'
row impostors 900 env TEST_ROUNDS="$(scaled 10000)" "$build/horo_net_test" --gtest_filter='Impostor.*:Secrecy.*'
row leaks 900 env TEST_STARTS="$(scaled 1000)" "$tests" --gtest_filter='Leak*'
row soak 1800 tools/soak.sh "$(scaled 60)" "$build"
row cuts 1800 env TEST_PARTITIONS="$(scaled 100000)" "$build/sim/horo_sim_test" --gtest_filter='SimulatedPartition.*'
row simulator 900 "$build/sim/horo_sim_test" --gtest_repeat="$(scaled 20)"
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v tc >/dev/null; then
  row encryption 600 bash -c encryption
else
  skip encryption "network namespaces need root, and the programs ip and tc"
fi
if "$python" -c 'import horo' 2>/dev/null; then
  row churn 1800 env CHURN_EVENTS="$(scaled 1000)" "$python" -m pytest -q -s tests/python/test_elastic_growth.py -k random
  row growth 600 "$python" bench/elastic_growth.py --rounds "$(scaled 30)"
  row recovery 1800 bash -c "endurance $(scaled 120) training"
  row patience 3600 bash -c "endurance $(scaled 1800) cores"
else
  skip churn "$python has no horo; make test-python installs it"
  skip growth "the same"
  skip recovery "the same"
  skip patience "the same"
fi
if clang=$(command -v clang-14 || command -v clang); then
  row fuzz 7200 bash -c "fuzz $(basename "$clang")"
else
  skip fuzz "libFuzzer needs clang, which is not installed"
fi
row planted 3600 tools/planted.py

echo
echo "what was done  outcome  took"
printf '%s\n' "${table[@]}"
echo "logs: $logs"
exit $failed
