"""A job that calls a function on every rank.

The call travels to the ranks as their standard input, and outcomes come back on a descriptor of their own: through the
launcher's agents, over socket pairs and ssh. At this end both are files in a folder that only this user can enter.
Nothing listens, so there is nothing that a stranger could send a pickle to.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from horo import pickling
from horo.exceptions import RankFailedError, RankTraceback
from horo.paths import program_path

# Beyond the launcher's own grace period for ranks.
_LAST_WORDS_SECONDS = 15.0


def check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it is a number of ranks, 1 or more")


def run_job(
    call: tuple[Any, tuple[Any, ...], dict[str, Any]],
    size: int,
    words: list[str],
    executable: str,
    elastic: bool = False,
) -> list[Any]:
    """Runs `call`, a function with its arguments, on `size` ranks; `words` are flags of `horo run`. Of an elastic job
    those that are left at the end return something."""
    blob = pickle.dumps((sys.path, pickling.dumps_call(*call)))
    with tempfile.TemporaryDirectory(prefix="horo-run-") as folder:
        return _run_in(Path(folder), blob, size, words, executable, elastic)


def _run_in(folder: Path, call: bytes, size: int, words: list[str], executable: str, elastic: bool) -> list[Any]:
    # The folder is this user's alone (mode 0700), so nobody can change what is unpickled from it.
    written = os.open(folder / "call", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(written, "wb") as file:
        file.write(call)
    command = [str(program_path()), "run", *words, f"--input={folder / 'call'}", f"--result-folder={folder}"]
    command += [f"--end-with-parent={os.getpid()}", "--", executable, "-m", "horo.task"]
    code, said = _run_launcher(command)
    try:
        outcome = json.loads((folder / "outcome.json").read_text())
    except FileNotFoundError:
        problem = said or f"horo run ended with exit code {code}"
        raise (ValueError if code == 2 else RuntimeError)(problem) from None
    # Of an elastic job there may be more than it began with.
    ranks = sorted(int(path.name.removeprefix("rank.")) for path in folder.glob("rank.*"))
    results = {rank: _read_result(folder / f"rank.{rank}") for rank in ranks}
    returned = [result["value"] for result in results.values() if result is not None and "value" in result]
    if code == 0 and returned and (elastic or len(returned) == size):
        return [pickle.loads(value) for value in returned]
    raise _failure(outcome, results, said)


def _read_result(path: Path) -> dict[str, Any] | None:
    """None when the rank ended before it had handed back all of it."""
    blob = path.read_bytes()
    if len(blob) < pickling.LENGTH.size or len(blob) != pickling.LENGTH.size + pickling.LENGTH.unpack_from(blob)[0]:
        return None
    return pickle.loads(blob[pickling.LENGTH.size :])


def _failure(outcome: dict[str, Any], results: dict[int, dict[str, Any] | None], said: str) -> BaseException:
    """Who failed first: the launcher's judgement for ranks that died, and the order in which exceptions came for
    others, since a rank may take long to end after it has raised, and its peers fail meanwhile."""
    ends = {end["rank"]: end for end in outcome["ranks"]}
    raised = [rank for rank in outcome["returned"] if results[rank] is not None and "value" not in results[rank]]
    first = outcome["first"]
    if first is None and not raised:
        silent = [rank for rank, result in results.items() if result is None]
        if outcome["code"] == 0 and silent:
            first = silent[0]
        else:
            return RuntimeError(said or f"horo run ended with exit code {outcome['code']}")
    if raised and (first is None or first in raised):
        first = raised[0]
        # Who noticed that a rank had died may have been quicker than the news of the death itself.
        died = [rank for rank in results[first].get("lost_ranks", ()) if results.get(rank) is None and rank in ends]
        died = [rank for rank in died if not ends[rank]["asked"]]
        first = died[0] if died else first
    result = results[first]
    if result is not None and "error" in result:
        return _exception_of(first, result)
    return _death_of(first, ends.get(first), result)


def failure_of(rank: int, outcome: dict[str, Any]) -> BaseException:
    """What a rank that returned no value has handed back, as an exception."""
    return _exception_of(rank, outcome) if "error" in outcome else _death_of(rank, None, outcome)


def _exception_of(rank: int, result: dict[str, Any]) -> BaseException:
    error: BaseException | None = None
    if result["error"] is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(result["error"])
    if not isinstance(error, BaseException):
        error = RankFailedError(f"rank {rank} raised {result['type']}: {result['message']}", rank, exit_code=1)
    error.__cause__ = RankTraceback(rank, result["traceback"])
    return error


def _death_of(rank: int, end: dict[str, Any] | None, result: dict[str, Any] | None) -> RankFailedError:
    if result is not None and "exit" in result:
        return RankFailedError(f"rank {rank} called sys.exit({result['exit']})", rank, exit_code=result["code"])
    if end is None:
        return RankFailedError(f"rank {rank} was lost with its host", rank)
    if end["error"]:
        return RankFailedError(f"rank {rank} did not start: {end['error']}", rank, exit_code=end["code"])
    if end["lost"]:
        return RankFailedError(f"what rank {rank} returned does not fit into {tempfile.gettempdir()}", rank)
    how = f"exit code {end['code']}"
    if end["signal"]:
        how = f"signal {end['signal']}"
        with contextlib.suppress(ValueError):
            how += f" ({signal.Signals(end['signal']).name})"
    tail = "".join(f"\n  {line}" for line in end["tail"])
    message = f"rank {rank} ended with {how} and returned nothing"
    message += f". Its last lines:{tail}" if tail else "; it wrote nothing"
    return RankFailedError(message, rank, exit_code=end["code"], signal=end["signal"])


def _run_launcher(command: list[str]) -> tuple[int, str]:
    """The exit code, and the launcher's own words. What ranks write goes to sys.stdout and sys.stderr."""
    own = _descriptor_of(sys.stdout)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if own is None else own,
        stderr=subprocess.PIPE,
    )
    words: list[str] = []
    streams = [(process.stderr, sys.stderr, words)] + ([(process.stdout, sys.stdout, [])] if own is None else [])
    pumps = [threading.Thread(target=_pump, args=stream, name="horo-output", daemon=True) for stream in streams]
    for pump in pumps:
        pump.start()
    try:
        code = process.wait()
    except BaseException:
        # Ctrl-C, most likely. Nothing of the job may be left when this returns.
        process.terminate()
        try:
            process.wait(_LAST_WORDS_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    finally:
        for pump in pumps:
            pump.join(_LAST_WORDS_SECONDS)
    return code, "\n".join(words)


def _descriptor_of(stream: Any) -> int | None:
    """None for what somebody has put in place of standard output, a notebook or a test: it may have a descriptor, but
    what is written there does not appear where the caller's words do."""
    try:
        stream.flush()
        return stream.fileno() if stream is sys.__stdout__ else None
    except (AttributeError, OSError, ValueError):
        return None


_MARK = "horo run: "
_MOST_WORDS = 60
_PIPEFUL = 1 << 16


def _pump(source: Any, target: Any, words: list[str]) -> None:
    """Passes on what comes as soon as it comes, and keeps the launcher's own lines."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    open_line = ""
    while chunk := source.read1(_PIPEFUL):
        text = decoder.decode(chunk)
        *lines, open_line = (open_line[-_PIPEFUL:] + text).split("\n")
        own = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
        words.extend(own[: max(0, _MOST_WORDS - len(words))])
        # A target that was closed meanwhile must not keep the launcher waiting.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            target.write(text)
            target.flush()
