#!/usr/bin/env bash
# Writes the generated pages (docs/knobs.md, from the tables in the code) and checks every local link.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
if [ -f cli/main.cc ]; then
  cmake --build "$build" --target horo_cli
  "$build/bin/horo" knobs --markdown >"$build/knobs.md"
  { printf '# Knobs\n\nWritten by `make docs` from the tables in the code.\n\n' && cat "$build/knobs.md"; } >docs/knobs.md
fi
python3 tools/check_links.py
