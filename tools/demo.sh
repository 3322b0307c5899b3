#!/usr/bin/env bash
# Runs the training example of a build folder: tools/demo.sh build/release [arguments of the example...]
set -euo pipefail
build=$1
shift
program=$build/examples/train
if [ ! -x "$program" ]; then
  echo "demo: $program was not built; is examples/train.cc there?"
  exit 1
fi
exec "$program" "$@"
