"""How ranks that have a store of torch's become a job of horo's."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from horo import _horo
from horo.meeting import Arrival, Meeting, Place, Terms, arrival
from horo.world import interruptibly


def start_engine(store: Any, rank: int, size: int) -> _horo.Engine:
    """Joins the job of the ranks that share `store`, and waits for all of them.

    Rank 0 opens a meeting and publishes its terms in torch's store, a fresh key with them. So whoever can read that
    store can join: the job is as safe as the store is. Where all ranks are on one host, nothing listens beyond
    loopback. The key is taken out of the store once all have joined.
    """
    if size == 1:
        here = arrival()
        return _engine(Meeting([here]).terms.place(0, here))
    # Another round each time that the same ranks meet at the same store.
    prefix = f"horo/{(store.add('horo/came', 1) - 1) // size}"
    place, meeting = meet_at(store, prefix, rank, size)
    if meeting is None:
        return _engine(place)
    try:
        return _engine(place)
    finally:
        meeting.close()
        with contextlib.suppress(Exception):  # Not every store can forget.
            store.delete_key(f"{prefix}/meeting")


def meet_at(store: Any, prefix: str, rank: int, size: int) -> tuple[Place, Meeting | None]:
    """This rank's place in a job of the ranks that share `store`, and on rank 0 the meeting, which it closes."""
    here = arrival()
    store.set(f"{prefix}/host/{rank}", json.dumps(here))
    if rank != 0:
        return Terms.read(_get(store, f"{prefix}/meeting")).place(rank, here), None
    meeting = Meeting([Arrival(*json.loads(_get(store, f"{prefix}/host/{other}"))) for other in range(size)])
    store.set(f"{prefix}/meeting", meeting.terms.written())
    return meeting.terms.place(0, here), meeting


def _get(store: Any, key: str) -> str:
    return store.get(key).decode()


def _engine(place: Place) -> _horo.Engine:
    def start() -> _horo.Engine:
        engine = _horo.Engine(*place)
        engine.open_messages()
        return engine

    return interruptibly(start)
