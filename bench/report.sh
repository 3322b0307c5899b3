#!/usr/bin/env bash
# Runs every measurement of docs/performance.md and writes one JSON file each and one Markdown page.
#
#   bench/report.sh build/release [FOLDER]     (FOLDER: build/release/report)
#
# QUICK=1 takes two rounds of short turns, to see that everything runs.
set -euo pipefail
build=$1
out=${2:-$build/report}
horo=$build/bin/horo
mkdir -p "$out"
page=$out/report.md
extra=()
[ -z "${QUICK:-}" ] || extra=(--rounds 2 --seconds 0.03)
failed=0

# shellcheck disable=SC2016  # The backquotes are Markdown's.
section() {
  printf '\n## %s\n\n`%s`\n\n```\n' "$1" "$2" >>"$page"
  echo "== $1" >&2
}

measure() { # NAME TITLE ARGUMENTS...
  local name=$1 title=$2
  shift 2
  section "$title" "horo bench $*"
  if ! "$horo" bench "$@" "${extra[@]}" --json "$out/$name.json" >>"$page" 2>&1; then
    failed=1
    echo "   failed: see $page" >&2
  fi
  echo '```' >>"$page"
}

echo "# Measured by bench/report.sh" >"$page"
peers=gloo,openmpi
measure allreduce "allreduce, 2 ranks" allreduce -np 2 --sizes 4,1K,64K,1M,16M,64M,256M --buffers both \
  --peers "$peers,openmpi-tuned"
if python3 -c 'import torch' 2>/dev/null; then
  measure allreduce-torch "allreduce, 2 ranks, gloo through torch" allreduce -np 2 --sizes 64M,256M --buffers both \
    --peers torch-gloo
else
  printf '\nThere is no torch for this python3: its figures are left out.\n' >>"$page"
fi
measure oversubscribed "allreduce, 4 ranks" allreduce -np 4 --sizes 4,64K,1M,16M,64M --peers "$peers"
for op in broadcast allgather reducescatter alltoall; do
  measure "$op" "$op, 2 ranks" "$op" -np 2 --sizes 1M,64M --peers "$peers"
done
measure dtypes "half precision, 64 Mi elements" allreduce -np 2 --sizes 256M --dtype f32,bf16,f16
measure barrier "barrier" barrier -np 2 --peers "$peers"
if [ "$(id -u)" = 0 ]; then
  measure tcp "tcp, 2 hosts" allreduce -np 2 --hosts 2 --sizes 4,64K,1M,64M --peers "$peers" --variant HORO_CHECKSUM=0
  measure tcp-1gbit "tcp, 2 hosts, 1 Gbit/s" allreduce -np 2 --hosts 2 --shape 1gbit --sizes 16M \
    --variant HORO_CHECKSUM=0
  measure tcp-10gbit "tcp, 2 hosts, 10 Gbit/s" allreduce -np 2 --hosts 2 --shape 10gbit --sizes 64M
else
  printf '\nHosts are network namespaces, which only root can make: left out.\n' >>"$page"
fi

section "What a small job survives" "horo check --self-test"
"$horo" check --self-test --seconds "${SELF_TEST_SECONDS:-20}" >>"$page" 2>&1 || failed=1
echo '```' >>"$page"
if [ -x "$build/horo_net_bench" ]; then
  section "Handshakes" "horo_net_bench --benchmark_filter=handshake"
  "$build/horo_net_bench" --benchmark_filter=handshake --benchmark_min_time=0.1 >>"$page" 2>&1 || failed=1
  echo '```' >>"$page"
fi
echo "wrote $page" >&2
exit $failed
