#!/usr/bin/env bash
# One job after the other for SECONDS: kills, reforms, right sums, nothing left behind: tools/soak.sh SECONDS [BUILD_FOLDER]
#
# TEST_SOAK_TURNS says how often each job begins anew after its kills (usually 200). A failure prints its seed.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: tools/soak.sh SECONDS [BUILD_FOLDER]}
tests=${2:-build/dev}/tests/horo_integration_test
if [ ! -x "$tests" ]; then
  echo "soak: $tests was not built; run: make build"
  exit 1
fi
TEST_SOAK_SECONDS=$seconds TEST_SOAK_TURNS=${TEST_SOAK_TURNS:-200} exec "$tests" --gtest_filter='Soak.*'
