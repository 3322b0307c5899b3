"""Ranks that torchrun started on several hosts, and that are told to trust its store."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

from horo.meeting import Meeting, Place
from horo.torch.c10d.boot import meet_at

_WAIT = timedelta(seconds=60)


def place_of_store() -> tuple[Place, Meeting | None]:
    """The job's key comes through torchrun's store, which asks nobody who he is: whoever reaches its port can join the
    job. So this is done only where the user says so: HORO_TRUST_STORE=1."""
    variables = os.environ
    if variables.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise ValueError("HORO_TRUST_STORE=1 needs the store of torchrun's agents; set HORO_KEY_FILE instead")
    address, port = variables["MASTER_ADDR"], int(variables["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=_WAIT)
    # The agents keep their store when they start their ranks again.
    prefix = f"horo/{variables.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    return meet_at(store, prefix, int(variables["RANK"]), int(variables["WORLD_SIZE"]))
