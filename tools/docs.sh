#!/usr/bin/env bash
# Writes the generated pages (docs/knobs.md, from the tables in the code) and checks every local link.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
if [ -f cli/main.cc ]; then
  cmake --build "$build" --target horo_cli
  table=$("$build/bin/horo" knobs --markdown)
  printf '# Knobs\n\nMade by "make docs" from the tables in the code; do not edit.\n\n%s\n' "$table" >docs/knobs.md
fi
python3 tools/check_links.py
