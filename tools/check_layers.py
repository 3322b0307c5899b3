#!/usr/bin/env python3
"""Holds the sources to the architecture: who may include whom, and which names may appear where.

Prints one line per violation and exits with 1 if there is any. docs/architecture.md tells the reasons.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# A module may include modules of a lower level and itself.
LEVELS = {
    "base": 0,
    "kernel": 1,
    "device": 1,
    "net": 2,  # Beside kernel in the picture; it may use kernel's checksums.
    "rendezvous": 3,
    "transport": 3,
    "collective": 4,
    "group": 5,
    "engine": 6,
    "ddp": 7,
    "api": 8,
}
NOT_ALLOWED = {("net", "device")}
# Folders of a family are alternatives and know nothing of each other; these folders are for all of them.
FAMILIES = {"transport", "collective"}
SHARED_IN_FAMILY = {"testing", "conformance"}
PUBLIC_HEADERS = {
    f"horo/api/{name}"
    for name in ("horo.h", "horo.hpp", "ddp.h", "ddp.hpp", "devices.h", "door.h", "messages.h", "observe.h")
}

SOCKET_HEADERS = re.compile(r"^(sys/socket\.h|netinet/.*|sys/epoll\.h|poll\.h|sys/poll\.h|sys/un\.h|arpa/inet\.h)$")
# sleep(3) has one argument; a function of ours that waits until a deadline may be called sleep too.
SLEEP = re.compile(r"\b(usleep|nanosleep|clock_nanosleep|sleep_for|sleep_until)\s*\(|\b(sleep)\s*\([^,()]*\)")
ENVIRONMENT = re.compile(r"\b(getenv|secure_getenv|environ)\b")
MACHINE_PATH = re.compile(r"(?<![\w.}~-])/(work|home|root|Users|mnt)/\w")
MAX_LINES = 500

# Names in C++ code (comments and strings aside), and the folders they belong to.
NAMES = [
    (re.compile(r"\b(cuda[A-Z_]\w*|CUDA_\w+|nccl\w+|NCCL_\w+|cu[A-Z]\w+|cuda_runtime)\b"), "CUDA", ("plugins/cuda/",)),
    (re.compile(r"\b(P?MPI_\w+|OMPI_\w+)\b"), "MPI", ("plugins/mpi/", "bench/peers/")),
    (re.compile(r"\b(torch|c10|at)::|\bTHP\w+"), "torch", ("plugins/torch/", "python/horo/torch/")),
    (re.compile(r"\b(tensorflow::|TF_[A-Z]\w+)"), "tensorflow", ("plugins/tensorflow/",)),
    (re.compile(r"\b(xla::|XLA_\w+)"), "jax", ("plugins/jax/",)),
]
FRAMEWORK_HEADERS = [
    (re.compile(r"^(cuda|nccl|cublas|cudnn)"), "CUDA", ("plugins/cuda/",)),
    (re.compile(r"^(mpi|mpi-ext)\.h$"), "MPI", ("plugins/mpi/", "bench/peers/")),
    (re.compile(r"^(torch|ATen|c10)/"), "torch", ("plugins/torch/",)),
    (re.compile(r"^tensorflow/"), "tensorflow", ("plugins/tensorflow/",)),
    (re.compile(r"^(xla|jaxlib)/"), "jax", ("plugins/jax/",)),
    (re.compile(r"^gloo/"), "gloo", ("bench/peers/",)),
]
PYTHON_FRAMEWORKS = re.compile(r"^\s*(?:import|from)\s+(torch|tensorflow|keras|jax|ray|pyspark|mpi4py)\b")
# Back ends of one interface: each is a file, and there alone several frameworks meet.
PYTHON_HOMES = ("tests/", "examples/", "bench/", "python/horo/backends/")

TOP_FOLDERS = ("horo", "plugins", "cli", "python", "sim", "tests", "bench", "docs", "examples", "tools", "cmake", ".ci")
CPP = {".h", ".hpp", ".cc", ".c", ".cu"}
TEXT = CPP | {".py", ".sh", ".cmake", ".md", ".toml", ".txt", ".json", ".in", ""}


@dataclass(frozen=True)
class Violation:
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass
class Source:
    path: str  # From the root, with forward slashes.
    text: str

    def __post_init__(self) -> None:
        self.suffix = PurePosixPath(self.path).suffix
        self.is_cpp = self.suffix in CPP
        self.lines = self.text.splitlines()
        self.code = without_comments_and_strings(self.text).splitlines() if self.is_cpp else []

    def under(self, folders: tuple[str, ...]) -> bool:
        return self.path.startswith(folders)

    @property
    def is_test(self) -> bool:
        name = PurePosixPath(self.path)
        return self.under(("tests/", "bench/")) or name.stem.endswith(("_test", "testing")) or "testing" in name.parts

    def includes(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.lines, 1):
            if match := re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line):
                yield number, match.group(1)


def without_comments_and_strings(text: str) -> str:
    """Blanks out comments, strings and characters; lines keep their numbers."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL,
    )
    return token.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), text)


def module_of(path: str) -> str | None:
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "horo" and parts[1] in LEVELS else None


def member_of(path: str) -> tuple[str, str] | None:
    parts = path.split("/")
    if len(parts) > 3 and parts[0] == "horo" and parts[1] in FAMILIES and parts[2] not in SHARED_IN_FAMILY:
        return parts[1], parts[2]
    return None


def layers(source: Source) -> Iterator[Violation]:
    own = module_of(source.path)
    for number, header in source.includes():
        other = module_of(header)
        if own is None or other is None or own == other:
            continue
        if LEVELS[other] >= LEVELS[own] or (own, other) in NOT_ALLOWED:
            yield Violation(source.path, number, f"{own} must not include {other} ({header}): includes point downward")


def families(source: Source) -> Iterator[Violation]:
    own = member_of(source.path)
    for number, header in source.includes():
        other = member_of(header)
        if own and other and own[0] == other[0] and own[1] != other[1]:
            yield Violation(source.path, number, f"{own[1]} must not include {other[1]}: members of {own[0]} are apart")


def public_headers(source: Source) -> Iterator[Violation]:
    if source.path not in PUBLIC_HEADERS:
        return
    for number, header in source.includes():
        if header.startswith("horo/") and header not in PUBLIC_HEADERS:
            yield Violation(source.path, number, f"a public header includes {header}, which is not installed")


def headers_in_place(source: Source) -> Iterator[Violation]:
    for number, header in source.includes():
        if SOCKET_HEADERS.match(header) and not source.under(("horo/net/", "tests/", "bench/", "examples/")):
            yield Violation(source.path, number, f"<{header}> belongs to horo/net")
        for pattern, name, folders in FRAMEWORK_HEADERS:
            if pattern.match(header) and not source.under(folders):
                yield Violation(source.path, number, f"<{header}> ({name}) belongs to {' or '.join(folders)}")


def names_in_place(source: Source) -> Iterator[Violation]:
    for number, line in enumerate(source.code, 1):
        for pattern, name, folders in NAMES:
            if (match := pattern.search(line)) and not source.under(folders):
                yield Violation(source.path, number, f"{match.group(0)} ({name}) belongs to {' or '.join(folders)}")


def environment(source: Source) -> Iterator[Violation]:
    if source.path == "horo/base/config.cc" or source.is_test or source.under(("examples/",)):
        return
    for number, line in enumerate(source.code, 1):
        if match := ENVIRONMENT.search(line):
            yield Violation(source.path, number, f"{match.group(0)}: only horo/base/config.cc reads the environment")


def sleeps(source: Source) -> Iterator[Violation]:
    lines = source.code if source.is_cpp else source.lines if source.suffix == ".py" else []
    for number, line in enumerate(lines, 1):
        if (match := SLEEP.search(line)) and not source.path.startswith("tools/"):
            name = match.group(1) or match.group(2)
            yield Violation(source.path, number, f"{name}: wait for a condition with a deadline instead")


def python_frameworks(source: Source) -> Iterator[Violation]:
    if source.suffix != ".py" or source.under(PYTHON_HOMES):
        return
    for number, line in enumerate(source.lines, 1):
        if match := PYTHON_FRAMEWORKS.match(line):
            name = {"pyspark": "spark"}.get(match.group(1), match.group(1))
            if f"/{name}/" not in f"/{source.path}":
                yield Violation(source.path, number, f"{match.group(1)} is imported outside its front end ({name}/)")


def machine_paths(source: Source) -> Iterator[Violation]:
    if PurePosixPath(source.path).name.startswith("check_layers"):
        return
    for number, line in enumerate(source.lines, 1):
        if match := MACHINE_PATH.search(line):
            yield Violation(source.path, number, f"{match.group(0)}...: a path of one machine")


def length(source: Source) -> Iterator[Violation]:
    if (source.is_cpp or source.suffix in {".py", ".sh", ".cmake"}) and len(source.lines) > MAX_LINES:
        yield Violation(source.path, MAX_LINES, f"{len(source.lines)} lines; at most {MAX_LINES}: split it by concept")


RULES: list[Callable[[Source], Iterator[Violation]]] = [
    layers,
    families,
    public_headers,
    headers_in_place,
    names_in_place,
    environment,
    sleeps,
    python_frameworks,
    machine_paths,
    length,
]


def files_of(root: Path) -> Iterator[Path]:
    # In a working tree that shares its repository, .git is a file too.
    yield from (path for path in root.iterdir() if path.is_file() and path.name != ".git")
    for folder in TOP_FOLDERS:
        yield from (path for path in sorted((root / folder).rglob("*")) if path.is_file())


def check(root: Path) -> list[Violation]:
    found: list[Violation] = []
    for path in files_of(root):
        relative = path.relative_to(root).as_posix()
        if path.suffix not in TEXT or "__pycache__" in relative:
            continue
        try:
            source = Source(relative, path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        for rule in RULES:
            found.extend(rule(source))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    found = check(parser.parse_args().root)
    for violation in found:
        print(violation)
    print(f"layers: {len(found)} violations" if found else "layers: every include and name is in its place")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
