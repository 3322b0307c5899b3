"""What `pip install .` put there. Nothing is built here."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import horo
from horo import _horo

ROOT = Path(__file__).resolve().parents[2]

# What every Linux has, and OpenSSL where its archives were not to be had.
SYSTEM_LIBRARIES = {"libc", "libm", "libstdc++", "libgcc_s", "libpthread", "libdl", "librt", "libssl", "libcrypto"}


def run(*command: str | Path) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout


def needed_libraries(path: Path) -> set[str]:
    found = re.findall(r"\(NEEDED\).*\[(.*?)\]", run("readelf", "-d", path))
    return {name.split(".so")[0] for name in found} - {"ld-linux-x86-64", "ld-linux-aarch64"}


def test_the_version_is_the_projects() -> None:
    declared = re.search(r"project\(horo VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert declared is not None
    assert horo.__version__ == declared.group(1) == metadata.version("horo")


def test_build_info_describes_this_machine() -> None:
    info = horo.build_info()
    assert set(info) == {"version", "compiler", "architecture", "build_type", "sanitizers"}
    assert info["architecture"] == platform.machine()
    assert info["compiler"]


def test_the_package_is_the_installed_one() -> None:
    assert ROOT / "python" not in Path(horo.__file__).parents


def test_the_extension_uses_the_stable_abi_where_python_has_it() -> None:
    assert _horo.__file__ is not None
    assert _horo.__file__.endswith(".abi3.so") == (sys.version_info >= (3, 12))


def test_libhoro_loads_on_its_own() -> None:
    ctypes.CDLL(str(horo.library_path()))


def test_libhoro_exports_only_its_c_names() -> None:
    lines = run("nm", "-D", "--defined-only", horo.library_path()).splitlines()
    names = {line.split()[-1].split("@")[0] for line in lines if line.split()[-2] != "A"}
    assert {name for name in names if not name.startswith("horo_")} == set()


def test_nothing_is_linked_but_the_systems_libraries() -> None:
    program = shutil.which("horo", path=sysconfig.get_path("scripts"))
    assert program is not None
    for path in (horo.library_path(), Path(_horo.__file__), Path(program)):
        assert needed_libraries(path) - SYSTEM_LIBRARIES - {"libhoro"} == set(), path


def test_public_headers_are_in_the_package() -> None:
    declared = ["ddp.h", "ddp.hpp", "devices.h", "door.h", "horo.h", "horo.hpp", "messages.h", "observe.h"]
    installed = sorted(path.name for path in (horo.include_dir() / "horo" / "api").glob("*"))
    assert installed == declared


def test_the_program_is_on_the_path_of_the_environment() -> None:
    program = shutil.which("horo", path=sysconfig.get_path("scripts"))
    assert program is not None
    assert horo.__version__ in run(program, "--version")


def test_horovodrun_runs_ranks() -> None:
    program = shutil.which("horovodrun", path=sysconfig.get_path("scripts"))
    assert program is not None
    lines = run(program, "-np", "2", "sh", "-c", "echo rank $HOROVOD_RANK").splitlines()
    assert sorted(line.split("rank ")[-1] for line in lines if "rank " in line) == ["0", "1"]


def test_importing_horo_imports_no_framework() -> None:
    code = "import horo, sys; print([m for m in ('torch', 'tensorflow', 'jax', 'keras', 'numpy') if m in sys.modules])"
    assert run(sys.executable, "-c", code).strip() == "[]"
