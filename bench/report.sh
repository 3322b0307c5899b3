#!/usr/bin/env bash
# Runs what docs/performance.md lists under `make bench` and writes one JSON file each and one Markdown page.
#
#   bench/report.sh build/release [FOLDER]     (FOLDER: build/release/report)
#
# QUICK=1 takes two rounds of short turns, to see that everything runs. PREFIX="taskset -c 0,1" is put before every
# command. ONLY="tcp|wait" runs what has that in its name, and leaves the results of the others in FOLDER as they are.
set -euo pipefail
build=$1
out=${2:-$build/report}
horo=$build/bin/horo
mkdir -p "$out"
read -ra prefix <<<"${PREFIX:-}"
extra=()
[ -z "${QUICK:-}" ] || extra=(--rounds 2 --seconds 0.03)
failed=0
sections=()

section() { # NAME TITLE COMMAND...: its part of the page
  local name=$1 title=$2 status=0
  shift 2
  sections+=("$name")
  [[ $name =~ ${ONLY:-.} ]] || return 0
  echo "== $title" >&2
  # shellcheck disable=SC2016  # The backquotes are Markdown's.
  printf '\n## %s\n\n`%s`\n\n```\n' "$title" "$(basename "$1") ${*:2}" >"$out/$name.md"
  "${prefix[@]}" "$@" >>"$out/$name.md" 2>&1 || status=$?
  echo '```' >>"$out/$name.md"
  [ $status = 0 ] || { failed=1 && echo "   failed: see $out/$name.md" >&2; }
}

bench() { # NAME TITLE ARGUMENTS...
  local name=$1 title=$2
  shift 2
  section "$name" "$title" "$horo" bench "$@" "${extra[@]}" --json "$out/$name.json"
}

remark() { # NAME TEXT
  sections+=("$1")
  printf '\n%s\n' "$2" >"$out/$1.md"
}

peers=gloo,openmpi
bench allreduce-small "allreduce, 2 ranks, up to 64 KiB" allreduce -np 2 --sizes 4,1K,64K --buffers both \
  --peers "$peers,bare"
bench allreduce-middle "allreduce, 2 ranks, 1 and 16 MiB" allreduce -np 2 --sizes 1M,16M --buffers both \
  --peers "$peers,openmpi-tuned,bare"
bench allreduce-large "allreduce, 2 ranks, 64 and 256 MiB" allreduce -np 2 --sizes 64M,256M --buffers both \
  --peers "$peers,openmpi-tuned,bare"
if python3 -c 'import torch' 2>/dev/null; then
  bench torch "allreduce, 2 ranks, gloo through torch" allreduce -np 2 --sizes 64M,256M --buffers both \
    --peers torch-gloo
else
  remark torch "There is no torch for this python3: gloo through torch is left out."
fi
bench oversubscribed "allreduce, 4 ranks" allreduce -np 4 --sizes 4,64K,1M,16M,64M --buffers both \
  --peers "$peers,bare"
for op in broadcast allgather; do
  bench "$op" "$op, 2 ranks" "$op" -np 2 --sizes 1M,64M --peers "$peers,bare"
done
for op in reducescatter alltoall gather scatter sendrecv; do
  bench "$op" "$op, 2 ranks" "$op" -np 2 --sizes 1M,64M --peers "$peers"
done
bench dtypes "half precision, 64 Mi elements" allreduce -np 2 --sizes 256M --dtype f32,bf16,f16
bench barrier "barrier, 2 ranks" barrier -np 2 --peers "$peers"
for ranks in 2 4; do
  bench "wait-$ranks" "waiting and doing nothing, $ranks ranks" wait -np $ranks --peers "$peers" --rounds 3
done
if [ "$(id -u)" = 0 ]; then
  bench tcp "tcp, 2 hosts" allreduce -np 2 --hosts 2 --sizes 4,64K,1M,64M --peers "$peers" --variant HORO_CHECKSUM=0
  bench tcp-1gbit "tcp, 2 hosts, 1 Gbit/s" allreduce -np 2 --hosts 2 --shape 1gbit --sizes 16M \
    --variant HORO_CHECKSUM=0
  bench tcp-10gbit "tcp, 2 hosts, 10 Gbit/s" allreduce -np 2 --hosts 2 --shape 10gbit --sizes 64M
else
  remark tcp "Hosts are network namespaces, which only root can make: tcp between hosts is left out."
fi
section self-test "What a small job survives, and how soon it notices" "$horo" check --self-test \
  --seconds "${SELF_TEST_SECONDS:-40}"
if [ -x "$build/horo_net_bench" ]; then
  section handshake "Handshake of a pair, both sides; strangers" "$build/horo_net_bench" \
    --benchmark_filter='handshake|garbage' --benchmark_min_time=0.2
fi

page=$out/report.md
echo "# Measured by bench/report.sh" >"$page"
for name in "${sections[@]}"; do
  [ ! -f "$out/$name.md" ] || cat "$out/$name.md" >>"$page"
done
echo "wrote $page" >&2
exit $failed
