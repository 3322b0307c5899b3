"""The processes of one host."""

from __future__ import annotations

import os
from typing import Any

from horo.meeting import machine_id


def host_id() -> str:
    """Equal on processes that horo counts as being on one host."""
    return os.environ.get("HORO_HOST_ID") or machine_id()


def group_of_host(dist: Any) -> Any:
    """torch's process group of this process's host. Called by all processes, since each of them makes all groups."""
    hosts: list[str] = [""] * dist.get_world_size()
    dist.all_gather_object(hosts, host_id())
    own = None
    for host in sorted(set(hosts)):
        ranks = [rank for rank, other in enumerate(hosts) if other == host]
        made = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            own = made
    return own
