"""One rank of horo.run(): `python -m horo.task`. The call comes on standard input and its outcome goes to the
descriptor HORO_RESULT_FD. Both lead to the launcher that started this process, and to nobody else."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import traceback
from typing import Any

from horo import pickling


def outcome_of_error(error: BaseException) -> dict[str, Any]:
    pickled = None
    # The type may exist in this process only, and its arguments may be anything.
    with contextlib.suppress(Exception):
        blob = pickling.dumps(error)
        pickle.loads(blob)
        pickled = blob
    words = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return {
        "error": pickled,
        "type": module + kind.__qualname__,
        "message": str(error),
        "traceback": words,
        "lost_ranks": tuple(getattr(error, "lost_ranks", ())),
    }


def outcome_of_exit(left: SystemExit) -> dict[str, Any]:
    """As the interpreter has it: a number is the exit code, nothing is 0, and anything else is an error."""
    code = left.code if isinstance(left.code, int) else int(left.code is not None)
    return {"exit": left.code if isinstance(left.code, int) else repr(left.code), "code": code}


def outcome_of_value(value: Any) -> dict[str, Any]:
    try:
        return {"value": pickling.dumps(value)}
    except Exception as error:
        raise TypeError(f"what the function returned cannot be pickled: {error}") from error


def run_call(call: bytes) -> dict[str, Any]:
    paths, blob = pickle.loads(call)
    sys.path.extend(path for path in paths if path not in sys.path)
    func, args, kwargs = pickle.loads(blob)
    return outcome_of_value(func(*args, **kwargs))


def hand_back(fd: int, outcome: dict[str, Any]) -> None:
    blob = pickle.dumps(outcome, protocol=pickle.HIGHEST_PROTOCOL)
    with os.fdopen(fd, "wb") as result:
        result.write(pickling.LENGTH.pack(len(blob)))
        result.write(blob)


def main() -> int:
    if "HORO_RESULT_FD" not in os.environ:
        print("horo.task is what horo.run() starts on its ranks; it is not run by hand", file=sys.stderr)
        return 2
    fd = int(os.environ.pop("HORO_RESULT_FD"))
    os.set_inheritable(fd, False)  # What this rank starts must not keep the launcher waiting.
    call = sys.stdin.buffer.read()
    try:
        outcome = run_call(call)
    except SystemExit as left:
        hand_back(fd, outcome_of_exit(left))
        raise
    except BaseException as error:
        traceback.print_exc()
        hand_back(fd, outcome_of_error(error))
        return 1
    hand_back(fd, outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())
