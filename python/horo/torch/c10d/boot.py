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
    here = arrival()
    if size == 1:
        return _engine(Meeting([here]).terms.place(0, here))
    # Another round each time that the same ranks meet at the same store.
    round_number = (store.add("horo/came", 1) - 1) // size
    prefix = f"horo/{round_number}"
    store.set(f"{prefix}/host/{rank}", json.dumps(here))
    if rank != 0:
        return _engine(Terms.read(_get(store, f"{prefix}/meeting")).place(rank, here))
    meeting = Meeting([Arrival(*json.loads(_get(store, f"{prefix}/host/{other}"))) for other in range(size)])
    try:
        store.set(f"{prefix}/meeting", meeting.terms.written())
        return _engine(meeting.terms.place(0, here))
    finally:
        meeting.close()
        with contextlib.suppress(Exception):  # Not every store can forget.
            store.delete_key(f"{prefix}/meeting")


def _get(store: Any, key: str) -> str:
    return store.get(key).decode()


def _engine(place: Place) -> _horo.Engine:
    def start() -> _horo.Engine:
        engine = _horo.Engine(*place)
        engine.open_messages()
        return engine

    return interruptibly(start)
