#!/usr/bin/env python3
"""Checks that local links in the Markdown files lead somewhere: to a file, and to a heading where one is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def anchors_of(path: Path) -> set[str]:
    """Headings as GitHub names them."""
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower()).replace(" ", "-")
        number, unique = 0, slug
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found


def broken_links(path: Path) -> list[str]:
    text = FENCE.sub(lambda match: "\n" * match.group(0).count("\n"), path.read_text(encoding="utf-8"))
    problems = []
    for match in LINK.finditer(text):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        line = text.count("\n", 0, match.start()) + 1
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            problems.append(f"{path}:{line}: {target} does not exist")
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
            problems.append(f"{path}:{line}: {file.name} has no heading #{anchor}")
    return problems


def markdown_files(root: Path) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        return [root / name for name in listed.stdout.splitlines() if (root / name).exists()]
    return [*root.glob("*.md"), *(root / "docs").rglob("*.md")]


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    files = markdown_files(root)
    problems = [problem for file in files for problem in broken_links(file)]
    for problem in problems:
        print(problem)
    print(f"links: {len(problems)} broken in {len(files)} files")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
