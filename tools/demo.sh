#!/usr/bin/env bash
# Runs the training example of a build folder: tools/demo.sh build/release [arguments of the example...]
set -euo pipefail
build=${1:?usage: tools/demo.sh BUILD_FOLDER [arguments of the example...]}
shift
examples=$build/examples
if [ ! -x "$examples/train" ]; then
  echo "demo: $examples/train was not built (configured with -DHORO_EXAMPLES=OFF?); run: make demo-cpp"
  exit 1
fi
cores=$(nproc)
ranks=$((cores < 2 ? 2 : cores > 8 ? 8 : cores))

echo "One network, $ranks processes on the $cores cores of this machine. All train together: each computes the gradient of"
echo "its share of every batch, horo averages the gradients. Before and after, rank 0 trains alone, to compare (12 s in all)."
echo
"$examples/train" --ranks "$ranks" "$@"
cat <<WORDS

What to try next:
  $examples/train --ranks 4 --hidden 1024    more ranks, a larger network; --help tells the rest
  $examples/survive                          a rank is killed, the others go on
  $examples/probe                            how long an allreduce takes, from 4 bytes to 64 MiB
  HORO_TRANSPORT=tcp $examples/train         over sockets, as between machines
examples/train.cc is the program, docs/api.md the interface, \`make bench\` compares with other libraries.
WORDS
