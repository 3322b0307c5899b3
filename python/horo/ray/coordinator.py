"""What Ray's own HorovodTrainer, that of Ray Train V1, takes from Horovod to make ranks of its workers."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import ray

from horo import _horo
from horo.meeting import LOOPBACK, layout


class Coordinator:
    """Counts the workers and serves the store where they meet, for as long as it lives."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self._workers: dict[int, tuple[str, str]] = {}
        self._store: _horo.Store | None = None

    def register(self, hostname: str, node_id: str, world_rank: int) -> None:
        self._workers[world_rank] = (hostname, node_id)

    @property
    def world_size(self) -> int:
        return len(self._workers)

    @property
    def hostnames(self) -> set[str]:
        """One for each node: nodes of one host, as tests have them, are told apart by their ids."""
        names = {node: name for name, node in self._workers.values()}
        return set(names.values()) if len(set(names.values())) == len(names) else set(names)

    @property
    def node_id_string(self) -> str:
        """ "id:2,id:1": nodes and how many workers each has."""
        nodes = self._nodes()
        return ",".join(f"{node}:{nodes.count(node)}" for node in dict.fromkeys(nodes))

    def finalize_registration(self) -> dict[int, dict[str, str]]:
        """For the environment of each rank."""
        nodes = self._nodes()
        names = ("cross_rank", "cross_size", "local_rank", "local_size")
        return {
            rank: {
                **{f"HOROVOD_{name.upper()}": str(numbers[name]) for name in names},
                "HORO_HOST_ID": nodes[index],
            }
            for index, (rank, numbers) in enumerate(zip(sorted(self._workers), layout(nodes), strict=True))
        }

    def establish_rendezvous(self) -> dict[str, str]:
        """For the environment of all ranks, where init() takes the key out."""
        on_this_node = set(self._nodes()) == {ray.get_runtime_context().get_node_id()}
        address = LOOPBACK if on_this_node else ray.util.get_node_ip_address()
        job, key = secrets.token_hex(8), secrets.token_bytes(32)
        self._store = _horo.Store(f"[{address}]:0" if ":" in address else f"{address}:0", job, key)
        variables = {"HORO_STORE": self._store.address, "HORO_JOB_ID": job, "HORO_KEY": key.hex()}
        return {**variables, "HORO_INTERFACE": LOOPBACK} if on_this_node else variables

    def _nodes(self) -> list[str]:
        return [self._workers[rank][1] for rank in sorted(self._workers)]


def detect_nics(settings: Any, all_host_names: Iterable[str], node_workers: Any = None) -> list[str]:
    """Those of the settings. Nodes need not agree on names of interfaces: without a wish routing decides on each."""
    return sorted(settings.nics or ())


def nics_to_env_var(nics: Iterable[str]) -> dict[str, str]:
    names = list(nics)
    return {"HOROVOD_GLOO_IFACE": names[0], "NCCL_SOCKET_IFNAME": ",".join(names)} if names else {}
