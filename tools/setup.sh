#!/usr/bin/env bash
# Installs what a make target needs: tools/setup.sh GROUP..., where GROUP is build, lint, sanitize, bench, python, test or
# old-tensorflow.
#
# Debian and Ubuntu packages are installed when this runs as root or with passwordless sudo, only those that are missing.
# Otherwise it says which are missing and how to get them; SKIP_PACKAGES=1 believes that they are there. "python" makes
# the virtual environment .venv, with PyTorch where a build for CPUs can be had (TORCH=any takes one with CUDA too,
# gigabytes of it; TORCH=no none). "test" adds what horo works with and not on: other frameworks and launchers, whose tests
# are skipped without them. "old-tensorflow" makes an environment of its own, .cache/tensorflow-2.16.
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(build-essential cmake ninja-build ccache pkg-config libssl-dev libgtest-dev libgmock-dev libcli11-dev
  nlohmann-json3-dev libyaml-dev iproute2)
lint_packages=("${build_packages[@]}" clang-format-14 clang-tidy-14 shellcheck git)
sanitize_packages=("${build_packages[@]}" clang-14 libclang-rt-14-dev)
bench_packages=("${build_packages[@]}" libbenchmark-dev libgloo-dev libopenmpi-dev openmpi-bin)
python_packages=("${build_packages[@]}" python3 python3-venv python3-dev)
test_packages=(openmpi-bin libopenmpi-dev mpich openjdk-17-jre-headless)
# Without these a target still does its work and says what it left out.
optional_packages=" ccache iproute2 shellcheck libgloo-dev ${test_packages[*]} "

say() { printf 'setup: %s\n' "$*"; }

has_candidate() {
  [ -n "$(apt-cache policy "$1" 2>/dev/null | sed -n 's/^  Candidate: //p' | grep -v '(none)' || true)" ]
}

is_optional() { case "$optional_packages" in *" $1 "*) return 0 ;; *) return 1 ;; esac; }

# clang-tidy-14 where the distribution has it, else the distribution's own version: clang-tidy.
available_name() {
  local own=${1/-14/}
  if has_candidate "$1"; then
    echo "$1"
  elif [ "$own" != "$1" ] && has_candidate "$own"; then
    echo "$own"
  fi
}

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_install() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }

missing_of() {
  local package installed
  installed=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | tr '\n' ' ')"
  for package in "$@"; do
    case "$installed" in
      *" $package "* | *" ${package/-14/} "*) ;;
      *) echo "$package" ;;
    esac
  done | sort -u
}

install_packages() {
  [ -z "${SKIP_PACKAGES:-}" ] || return 0
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    say "this is not Debian or Ubuntu; make sure that you have the equivalents of: $*"
    return 0
  fi
  local missing=() names=() package name
  mapfile -t missing < <(missing_of "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! can_install; then
    local needed=0
    for package in "${missing[@]}"; do is_optional "$package" || needed=1; done
    say "missing packages: ${missing[*]}"
    say "only root can install them, and this user is not root and has no sudo without a password"
    say "let somebody who may run: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    say "if you have all of them from elsewhere, set SKIP_PACKAGES=1"
    if [ $needed = 1 ]; then exit 1; fi
    say "going on without them: only optional parts need them"
    return 0
  fi
  say "installing ${missing[*]}"
  as_root apt-get update -qq -o DPkg::Lock::Timeout=300 || say "apt-get update failed; trying with the lists that are here"
  for package in "${missing[@]}"; do
    name=$(available_name "$package")
    if [ -n "$name" ]; then
      names+=("$name")
    elif is_optional "$package"; then
      say "$package does not exist here; left out"
    elif [ "$package" = clang-format-14 ]; then
      say "clang-format 14 comes with the virtual environment"
    else
      say "$package does not exist in this distribution; Debian 12, Ubuntu 22.04 or later is needed"
      exit 1
    fi
  done
  [ ${#names[@]} -eq 0 ] ||
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
      -o DPkg::Lock::Timeout=300 "${names[@]}" >/dev/null
}

# The formatter's output differs between versions, so exactly 14 is used: from the distribution, or from PyPI.
ensure_formatter() {
  command -v clang-format-14 >/dev/null && return 0
  [ -x .venv/bin/clang-format ] || .venv/bin/python -m pip install --quiet clang-format==14.0.6
}

# PyTorch is for tests and examples: they are skipped without it, and say so.
ensure_torch() {
  local stamp=.venv/.torch list=python/requirements-torch.txt
  [ "${TORCH:-}" != no ] || return 0
  if [ ! -f $stamp ] || [ ! $stamp -nt $list ] || [ "$(head -n 1 $stamp)" != "asked for: ${TORCH:-cpu}" ]; then
    { echo "asked for: ${TORCH:-cpu}" && install_torch $list; } >.venv/.torch.new
    mv .venv/.torch.new $stamp
  fi
  # What was wrong is said each time; asking again takes long.
  [ "$(wc -l <$stamp)" = 1 ] || { tail -n +2 $stamp && say "rm $stamp tries again"; }
}

# Frameworks and launchers that only tests and examples use: python/requirements-NAME.txt. Most of their modules are
# never imported: those that are get compiled then.
ensure_list() { # NAME
  local stamp=.venv/.$1 list=python/requirements-$1.txt
  if [ ! -f "$stamp" ] || [ ! "$stamp" -nt "$list" ]; then
    say "installing the list $1 into .venv"
    : >"$stamp.new"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r "$list" ||
      say "$list could not be installed; the tests that need it are skipped" >"$stamp.new"
    mv "$stamp.new" "$stamp"
  fi
  [ ! -s "$stamp" ] || { cat "$stamp" && say "rm $stamp tries again"; }
}

install_torch() { # LIST: says what went wrong
  local pip=(.venv/bin/python -m pip) quiet=(--quiet --disable-pip-version-check) plan
  if ! plan=$("${pip[@]}" install "${quiet[@]}" --dry-run --report - -r "$1" 2>&1); then
    say "PyTorch cannot be had here; its tests and examples are skipped. pip said:"
    printf '%s\n' "$plan" | tail -n 3
  elif [ "${TORCH:-}" != any ] && grep -q '"name": *"nvidia-' <<<"$plan"; then
    say "pip finds PyTorch with CUDA only, which is gigabytes: its tests and examples are skipped. Point pip at an index"
    say "with builds for CPUs (PIP_EXTRA_INDEX_URL), or set TORCH=any to take this one"
  else
    say "installing PyTorch into .venv" >&2
    "${pip[@]}" install "${quiet[@]}" --no-compile -r "$1" >&2 ||
      say "PyTorch could not be installed; its tests and examples are skipped"
  fi
}

ensure_venv() {
  local stamp=.venv/.ready
  # A folder that was kept for another machine may lack its Python.
  .venv/bin/python -c '' 2>/dev/null || rm -rf .venv
  if [ -f $stamp ] && [ $stamp -nt python/requirements.txt ]; then return 0; fi
  say "making the virtual environment .venv"
  [ -d .venv ] || python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r python/requirements.txt
  touch $stamp
}

# Keras 2 wants a package "tensorflow", which here is tensorflow-cpu: it comes without what it wants.
ensure_old_tensorflow() {
  local folder=.cache/tensorflow-2.16 list=python/requirements-old-tensorflow.txt
  local pip=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
  "$folder/bin/python" -c '' 2>/dev/null || rm -rf "$folder"
  [ ! -f "$folder/.ready" ] || [ ! "$folder/.ready" -nt $list ] || return 0
  say "making the environment $folder"
  python3 -m venv "$folder"
  if "${pip[@]}" -r $list && "${pip[@]}" --no-deps 'tf-keras==2.16.*'; then
    touch "$folder/.ready"
  else
    say "TensorFlow 2.16 cannot be had for this Python; its tests are left out"
  fi
}

for group in "$@"; do
  case "$group" in
    build) install_packages "${build_packages[@]}" ;;
    sanitize) install_packages "${sanitize_packages[@]}" ;;
    bench) install_packages "${bench_packages[@]}" ;;
    python)
      install_packages "${python_packages[@]}"
      ensure_venv
      ensure_torch
      ;;
    test)
      install_packages "${test_packages[@]}"
      ! .venv/bin/python -c 'import torch' 2>/dev/null || ensure_list torch-users
      ensure_list tensorflow
      ensure_list clusters
      ;;
    old-tensorflow) ensure_old_tensorflow ;;
    lint)
      install_packages "${lint_packages[@]}" "${python_packages[@]}"
      ensure_venv
      ensure_formatter
      ;;
    *)
      say "unknown group '$group'; groups are build, lint, sanitize, bench, python, test, old-tensorflow"
      exit 2
      ;;
  esac
done
