"""How many ranks there is room for on which nodes of Ray."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from horo.discovery import HostDiscovery


class RayHostDiscovery(HostDiscovery):
    """All that Ray's nodes have, in use or not.

    Args:
        use_gpu, cpus_per_slot, gpus_per_slot: What a rank takes of a node.
    """

    def __init__(self, use_gpu: bool = False, cpus_per_slot: int = 1, gpus_per_slot: int = 1) -> None:
        self._cpus = cpus_per_slot
        self._gpus = gpus_per_slot if use_gpu else 0

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """By address: of nodes on one machine together."""
        found: dict[str, int] = {}
        for node in live_nodes():
            slots = self.slots_of(node)
            if slots:
                found[node["NodeManagerAddress"]] = found.get(node["NodeManagerAddress"], 0) + slots
        return found

    def slots_of(self, node: Mapping[str, Any]) -> int:
        has = node.get("Resources", {})
        wanted = {"CPU": self._cpus, "GPU": self._gpus}
        counts = [int(has.get(name, 0) // amount) for name, amount in wanted.items() if amount > 0]
        return min(counts, default=0)


def live_nodes() -> list[dict[str, Any]]:
    """Always in the same order."""
    return sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeID"])


def slots_by_node(room: RayHostDiscovery, told: HostDiscovery | None) -> dict[str, int]:
    """By the ids of nodes: what there is room for, and not more than `told` has for their addresses."""
    allowed = None if told is None else dict(told.find_available_hosts_and_slots())
    found: dict[str, int] = {}
    for node in live_nodes():
        slots = room.slots_of(node)
        if allowed is not None:
            address = node["NodeManagerAddress"]
            slots = min(slots, allowed.get(address, 0))
            allowed[address] = allowed.get(address, 0) - slots
        if slots > 0:
            found[node["NodeID"]] = slots
    return found
