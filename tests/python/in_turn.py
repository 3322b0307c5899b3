"""The tests of a folder in one process of three: as one of 3 ranks, and then as one of 2 or alone.

So every number of ranks is seen, and a framework, whose import takes seconds, is imported three times and not six.
    horo run -np 3 python in_turn.py FOLDER [FILE ...]
Two ranks run the tests of the whole folder; one and three run those of the files, or all if none is given.
"""

from __future__ import annotations

import os
import sys

import pytest

import horo
from horo.meeting import Meeting, Place, arrival
from horo.world import world

# -x: a rank that fails ends, or the others would wait for it in the next operation.
OPTIONS = ("-x", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider")


def second_job() -> tuple[Place, Meeting | None]:
    """Where this process joins a job of the first two processes, or of the third, and what serves it."""
    horo.init()
    first = 0 if horo.rank() < 2 else 2
    here = arrival()
    arrivals = horo.allgather_object(here)
    meeting = Meeting(arrivals[:2] if first == 0 else arrivals[2:]) if horo.rank() == first else None
    terms = horo.allgather_object(meeting.terms if meeting else None)[first]
    place = terms.place(horo.rank() - first, here)
    horo.shutdown()
    return place, meeting


def run(ranks: int, folder: str, files: list[str]) -> None:
    code = pytest.main([*OPTIONS, *(files if files and ranks != 2 else [folder])])
    if code != 0:
        sys.exit(int(code))
    print(f"{ranks} ranks are done", flush=True)


def main(folder: str, *files: str) -> None:
    place, meeting = second_job()
    run(3, folder, list(files))
    world.stand_at(place)
    os.environ.pop("HORO_KEY_FD", None)  # Of the launcher's job; one rank alone has no key.
    run(place.size, folder, list(files))
    if meeting is not None:
        meeting.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
