#!/bin/bash
# Builds horo from source on a machine with a GPU, needs no network, runs all tests and measurements that need the GPU,
# and prints one short table; fails on any wrong result. docs/gpu.md says what the machine must have.
#
#   tools/gpu.sh [OUTPUT_FOLDER]      CMAKE_ARGS: more for cmake. PARTS: which (build check operations ...).
set -u
cd "$(dirname "$0")/.." || exit 1
out=${1:-${OUT:-build/gpu-results}}
logs=$PWD/build/gpu-logs
mkdir -p "$out" "$logs"
: >"$out/gpu.log"
site=$PWD/build/gpu-site
parts=${PARTS:-build check casts operations nccl training streams killed bench step mps sanitizer cpu}
python=${PYTHON:-python3}
began=$(date +%s)
table=()
failed=0

# run NAME SECONDS COMMAND...: its output goes to gpu.log; its outcome into the table.
run() {
  local name=$1 limit=$2
  shift 2
  local start
  start=$(date +%s)
  timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1
  local code=$?
  local outcome=passed
  [ $code -eq 0 ] || { outcome="FAILED ($code)"; failed=1; }
  table+=("$(printf '%-28s %-14s %4d s' "$name" "$outcome" $(($(date +%s) - start)))")
  echo "== $name: $outcome (at $(($(date +%s) - began)) s)"
  { echo "==== $name: $outcome"; tail -c 60000 "$logs/$name.log"; } >>"$out/gpu.log"
  [ $code -eq 0 ] || grep -E "FAILED|Error|error" "$logs/$name.log" | cut -c1-200 | head -12
}
wanted() { [[ " $parts " == *" $1 "* ]]; }

# shellcheck disable=SC2317  # Called by bash -c.
build() {
  # shellcheck disable=SC2086
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DHORO_PYTHON=ON -DHORO_TESTS=ON -DHORO_EXAMPLES=OFF \
    ${CMAKE_ARGS:-} && cmake --build build/gpu --parallel --target horo_wheel horo_cli horo_device_test horo_engine_test \
      horo_api_test horo_cuda_test horo_cuda_kernels && rm -rf "$site" && mkdir -p "$site" &&
    cp -r python/horo "$site/" && cmake --install build/gpu --component python --prefix "$site"
}
export -f build
export site

wanted build && run build 400 bash -c build
# There is one GPU, and the ranks share it.
export PYTHONPATH=$site PATH=$PWD/build/gpu/bin:$PATH PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 HORO_SHARE_GPUS=1
gpu() { echo "$PWD/tests/gpu/$1.py"; }
# shellcheck disable=SC2317  # Called by bash -c.
device_tests() {
  build/gpu/horo_device_test && build/gpu/horo_engine_test --gtest_filter='Device*' && build/gpu/horo_cuda_test &&
    build/gpu/horo_cuda_kernels build/gpu/libhoro_cuda.so &&
    build/gpu/horo_api_test --gtest_filter='ApiNull*:ApiCast*:*Knob*'
}
export -f device_tests
wanted check && run device-tests 100 bash -c device_tests && grep -E "FAILED|PASSED" "$logs/device-tests.log"
wanted check && run check 60 "$python" -c "
import torch, horo
from horo import _horo
print(torch.__version__, torch.cuda.get_device_name(0)); print(*_horo.devices(), sep='\n')
raise SystemExit(0 if horo.cuda_built() else 1)" && cat "$logs/check.log"
if wanted casts; then
  run casts 90 horo run -np 1 "$python" "$(gpu casts)"
  grep -hE "bandwidth|%|checks" "$logs/casts.log" | sed 's/^\[[0-9]*\]<[a-z]*>://'
fi
if wanted operations; then
  for ranks in 1 2 4; do run operations-$ranks 150 horo run -np $ranks "$python" "$(gpu operations)"; done
  for path in direct staged; do
    HORO_DEVICE_PATH=$path run operations-2-$path 100 horo run -np 2 "$python" "$(gpu operations)" --quick
  done
fi
if wanted nccl; then
  HORO_DEVICE_PATH=nccl run operations-1-nccl 60 horo run -np 1 "$python" "$(gpu operations)" --quick
  HORO_DEVICE_PATH=nccl run nccl-overhead 40 horo run -np 1 "$python" "$(gpu nccl)"
  sed 's/^\[[0-9]*\]<[a-z]*>://' "$logs/nccl-overhead.log"
fi
if wanted training; then
  run optimizer-2 60 horo run -np 2 "$python" "$(gpu training)" optimizer
  run own-ddp-2 60 horo run -np 2 "$python" "$(gpu training)" own
  run amp-2 60 horo run -np 2 "$python" "$(gpu training)" amp
  for ranks in 1 2; do
    rm -f "/tmp/horo-gpu-store-$$"
    run ddp-$ranks 60 horo run -np $ranks "$python" "$(gpu training)" ddp "/tmp/horo-gpu-store-$$"
  done
  rm -f "/tmp/horo-gpu-store-$$"
  run comm-hook-2 60 horo run -np 2 "$python" "$(gpu training)" hook "/tmp/horo-gpu-store-$$"
fi
streams() {
  rm -f "/tmp/horo-gpu-streams-$$"
  run "streams-$1" 90 horo run -np "${1%%-*}" "$python" "$(gpu streams)" "/tmp/horo-gpu-streams-$$"
  grep -hE "thread|wait|groups" "$logs/streams-$1.log" | sed 's/^\[[0-9]*\]<[a-z]*>://'
}
if wanted streams; then
  HORO_DEVICE_HOLD=always streams 2
  HORO_DEVICE_PATH=nccl streams 1-nccl
fi
if wanted killed; then
  run killed-3 60 "$python" "$(gpu killed)"
  HORO_DEVICE_HOLD=always HORO_ASYNC_COMPLETION=1 run killed-3-streams 60 "$python" "$(gpu killed)"
  cat "$logs/killed-3.log" "$logs/killed-3-streams.log"
fi
bench() {
  rm -f "/tmp/horo-gpu-gloo-$$"
  run "bench-2$1" 100 horo run -np 2 "$python" "$(gpu bench)" --kernels --gloo "/tmp/horo-gpu-gloo-$$"
  run "bench-4$1" 60 horo run -np 4 "$python" "$(gpu bench)"
  grep -hE "ranks|bytes|%|tensors|a turn" "$logs/bench-2$1.log" "$logs/bench-4$1.log" | sed 's/^\[[0-9]*\]<[a-z]*>://'
}
wanted bench && bench ""
step() {
  rm -f "/tmp/horo-gpu-step-$$"
  run "step-2$1" 60 horo run -np 2 --share-gpus "$python" "$(gpu step)" "/tmp/horo-gpu-step-$$"
  grep -hE "ranks|ms," "$logs/step-2$1.log" | sed 's/^\[[0-9]*\]<[a-z]*>://'
}
wanted step && step ""
if wanted mps && command -v nvidia-cuda-mps-control >/dev/null; then
  export CUDA_MPS_PIPE_DIRECTORY=/tmp/horo-mps-$$ CUDA_MPS_LOG_DIRECTORY=/tmp/horo-mps-$$
  mkdir -p "$CUDA_MPS_PIPE_DIRECTORY"
  if nvidia-cuda-mps-control -d; then
    run operations-2-mps 100 horo run -np 2 "$python" "$(gpu operations)" --quick
    streams 2-mps
    bench -mps
    step -mps
    echo quit | nvidia-cuda-mps-control >/dev/null
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
  else
    table+=("mps                          not available")
  fi
fi
# Without a framework: its own kernels would take the sanitizer minutes.
wanted sanitizer && command -v compute-sanitizer >/dev/null &&
  run sanitizer 60 compute-sanitizer --error-exitcode 9 build/gpu/horo_cuda_kernels build/gpu/libhoro_cuda.so
# How the CPU path scales, against gloo (torch), and Open MPI where its compiler is there.
if wanted cpu; then
  install -m 755 bench/peers/torch-gloo/torch_gloo_peer.py build/gpu/bin/horo_peer_torch-gloo
  peers=torch-gloo
  command -v mpicxx >/dev/null && mpicxx -std=c++20 -O2 -I. bench/peers/openmpi/*.cc cli/bench/participant.cc \
    cli/bench/pattern.cc cli/bench/protocol.cc build/gpu/libhoro_base.a -ldl -lpthread \
    -o build/gpu/bin/horo_peer_openmpi >"$logs/openmpi-peer.log" 2>&1 && peers+=,openmpi
  for ranks in ${CPU_RANKS:-2 4 8 16}; do
    run "cpu-$ranks" 200 horo bench allreduce -np "$ranks" --sizes 4,64K,1M,64M --rounds 5 --seconds 0.05 --peers $peers
    cat "$logs/cpu-$ranks.log"
  done
fi
printf '\n%s\n' "---- $(date +%F), $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null)"
printf '%s\n' "${table[@]}"
exit $failed
