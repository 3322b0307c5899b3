"""Every place in the package that turns bytes into code or objects, or that listens, and why no stranger reaches it.

A place that is not in the table fails: whoever adds one says here who can send it bytes. So does a row without a place.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Where bytes become objects: file, function: (how many places, why only somebody who is in the job reaches it).
SITES = {
    ("horo/task.py", "outcome_of_error"): (1, "what this process itself has just pickled, to see whether it can be"),
    ("horo/task.py", "run_call"): (2, "standard input, a pipe of the launcher's agent that started this process"),
    ("horo/job.py", "_run_in"): (1, "files in a folder of mode 0700 of this user, written by the launcher it started"),
    ("horo/job.py", "_read_result"): (1, "the same files"),
    ("horo/job.py", "_exception_of"): (1, "the same files, or an outcome that came through Spark's own channels"),
    ("horo/objects.py", "broadcast_object"): (1, "a collective: sent by a rank, which has proved the job's key"),
    ("horo/objects.py", "allgather_object"): (1, "a collective, as above"),
    ("horo/driver.py", "values_of"): (1, "outcomes of Ray's actors and Spark's tasks, through their own channels"),
    ("horo/spark/job.py", "_values"): (1, "results of Spark's tasks: Spark itself pickles what tasks return"),
    ("horo/torch/parallel/members.py", "exchange"): (1, "a collective, as above"),
}

UNPICKLERS = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "joblib",
    "torch",
    "np",
    "numpy",
}
OPENERS = {"load", "loads", "Unpickler", "open"}
ALWAYS = {"eval", "exec", "compile", "__import__"}
LISTENERS = {"socketserver", "http.server", "xmlrpc", "xmlrpc.server", "multiprocessing.connection", "asyncio"}


def is_site(call: ast.Call) -> bool:
    target = call.func
    if isinstance(target, ast.Name):
        return target.id in ALWAYS or target.id in {"loads", "Unpickler"}
    if not isinstance(target, ast.Attribute):
        return False
    owner = target.value.id if isinstance(target.value, ast.Name) else None
    if owner == "os":
        return target.attr in {"system", "popen"}
    if target.attr in {"loads", "Unpickler"}:  # Whatever it was imported as, but for text.
        return owner != "json"
    if owner == "subprocess" or any(word.arg == "shell" for word in call.keywords):
        shell = next((word.value for word in call.keywords if word.arg == "shell"), None)
        return shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False)
    return owner in UNPICKLERS and target.attr in OPENERS


def sites_in(source: str, file: str) -> Counter[tuple[str, str]]:
    """By the innermost function they are in."""
    found: Counter[tuple[str, str]] = Counter()

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.Call) and is_site(node):
            found[file, function] += 1
        # Passed on under another name, it could be called anywhere.
        if isinstance(node, ast.ImportFrom) and node.module in {"pickle", "cloudpickle", "marshal", "dill"}:
            found[file, f"from {node.module} import"] += 1
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    visit(ast.parse(source), "")
    return found


def package_files() -> list[Path]:
    files = sorted((ROOT / "python").rglob("*.py"))
    assert len(files) > 80, "the package is not where it was"
    return files


def test_objects_are_unpickled_only_where_the_table_says_why() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for path in package_files():
        found += sites_in(path.read_text(), path.relative_to(ROOT / "python").as_posix())
    expected = {place: count for place, (count, _) in SITES.items()}
    assert dict(found) == expected, "say in SITES who can reach the new place, or remove the row of the old one"


@pytest.mark.parametrize(
    "line",
    [
        "pickle.loads(b)",
        "pickle.load(f)",
        "pickle.Unpickler(f).load()",
        "cloudpickle.loads(b)",
        "ray.cloudpickle.loads(b)",
        "module().loads(b)",
        "torch.load(f)",
        "np.load(f, allow_pickle=True)",
        "marshal.loads(b)",
        "shelve.open(f)",
        "eval(s)",
        "exec(s)",
        "os.system(s)",
        "subprocess.run(s, shell=True)",
        "from pickle import loads",
    ],
)
def test_the_gate_sees(line: str) -> None:
    assert sites_in(f"def f():\n    {line}\n", "x.py").total() >= 1


def test_the_gate_lets_text_pass() -> None:
    for line in ("json.loads(b)", "json.load(f)", "re.compile(s)", "subprocess.run([s])", "pickle.dumps(b)"):
        assert sites_in(f"def f():\n    {line}\n", "x.py").total() == 0, line


def test_nothing_in_the_package_listens_in_python() -> None:
    """What listens is C++ and authenticates first (docs/security.md)."""
    for path in package_files():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not LISTENERS & set(names), f"{path} imports {names}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"listen", "create_server", "start_server"}, f"{path}:{node.lineno} listens"


def test_no_c_plus_plus_calls_the_interpreter_with_text() -> None:
    pattern = re.compile(
        r"\b(PyRun_\w+|Py_CompileString\w*|PyEval_EvalCode\w*|PyMarshal_Read\w+|nb::(eval|exec)|system\(|popen\()"
    )
    for folder in ("horo", "cli", "plugins", "python/bindings"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".cc", ".h", ".hpp", ".cu"} and not path.name.endswith("_test.cc"):
                found = pattern.search(path.read_text())
                assert found is None, f"{path}: {found}"
