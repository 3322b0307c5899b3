#!/usr/bin/env bash
# Runs every check, says what each found, and fails if any did. --fix rewrites; --tidy-seconds N|inf runs clang-tidy too.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

fix=0
tidy_seconds=0
while [ $# -gt 0 ]; do
  case "$1" in
    --fix) fix=1 ;;
    --tidy-seconds)
      tidy_seconds=$2
      shift
      ;;
    *)
      echo "usage: tools/lint.sh [--fix] [--tidy-seconds N]"
      exit 2
      ;;
  esac
  shift
done

formatter=$(command -v clang-format-14 || echo .venv/bin/clang-format)
list() { git ls-files --cached --others --exclude-standard -- "$@" | while read -r file; do [ -f "$file" ] && echo "$file"; done; }
mapfile -t cpp < <(list '*.h' '*.hpp' '*.inc' '*.cc' '*.c')
mapfile -t python < <(list '*.py')
mapfile -t shell < <(
  list '*.sh'
  list '.ci/run'
)

if [ $fix = 1 ]; then
  "$formatter" -i "${cpp[@]}"
  .venv/bin/ruff check --quiet --fix "${python[@]}"
  .venv/bin/ruff format --quiet "${python[@]}"
  exit
fi

failures=0
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    printf 'lint: %-12s ok     %3d s\n' "$name" $((SECONDS - start))
  else
    printf 'lint: %-12s FAILED %3d s\n' "$name" $((SECONDS - start))
    failures=$((failures + 1))
  fi
}

check_format() {
  if ! "$formatter" --dry-run -Werror "${cpp[@]}" 2>build/format.log; then
    grep -E '^[^ ]+:[0-9]+:' build/format.log | sed 's/: error: code should be clang-formatted.*/: not formatted/' |
      awk -F: '!seen[$1]++ {print $1 ":" $2 ": not formatted (make format)"}'
    return 1
  fi
}
check_shell() {
  if ! command -v shellcheck >/dev/null; then
    echo "shellcheck is not installed: shell scripts are checked by bash alone"
    for script in "${shell[@]}"; do bash -n "$script" || return 1; done
    return 0
  fi
  shellcheck "${shell[@]}"
}

mkdir -p build
check format check_format
check layers python3 tools/check_layers.py
check links python3 tools/check_links.py
check ruff .venv/bin/ruff check --quiet "${python[@]}"
check ruff-format .venv/bin/ruff format --quiet --check "${python[@]}"
check shell check_shell
if [ "$tidy_seconds" = 0 ]; then
  echo "lint: clang-tidy takes minutes and is left to make lint-all"
else
  check tidy python3 tools/tidy.py --seconds "$tidy_seconds"
fi
if [ $failures -gt 0 ]; then
  echo "lint: $failures checks failed"
  exit 1
fi
echo "lint: all checks passed"
