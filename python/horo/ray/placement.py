"""Actors for the ranks, where the user wants them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import ray
from ray.util import get_current_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from horo.legacy.timeout import Timeout
from horo.ray.places import fetch
from horo.ray.worker import BaseHorovodWorker


@dataclass(frozen=True)
class Wish:
    """`hosts` nodes with `per_host` workers each; 0 hosts: `per_host` workers on as few nodes as possible."""

    hosts: int
    per_host: int
    cpus: int
    gpus: int
    use_current_group: bool

    @property
    def workers(self) -> int:
        return max(self.hosts, 1) * self.per_host

    def bundles(self) -> list[dict[str, float]]:
        workers = self.per_host if self.hosts else 1
        bundle = {"CPU": self.cpus * workers, "GPU": self.gpus * workers}
        return [{name: amount for name, amount in bundle.items() if amount}] * (self.hosts or self.per_host)


class Workers:
    """The actors, in the order of their ranks: those of a node follow each other. Gone after release()."""

    def __init__(self, wish: Wish, placement_limit: Timeout, start_limit: Timeout) -> None:
        current = get_current_placement_group() if wish.use_current_group else None
        self._own_group = None if current else self._reserve(wish, placement_limit)
        self._actors: list[Any] = []
        try:
            self._start(wish, current, start_limit)
        except BaseException:
            self.release()
            raise

    def __len__(self) -> int:
        return len(self._actors)

    def call(self, rank: int, function: Any, *args: Any) -> ray.ObjectRef:
        return self._actors[rank].call.remote(function, *args)

    def on(self, rank: int) -> Any:
        return self._actors[rank]

    def release(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []
        if self._own_group is not None:
            remove_placement_group(self._own_group)
            self._own_group = None

    @staticmethod
    def _reserve(wish: Wish, limit: Timeout) -> Any:
        bundles = wish.bundles()
        group = placement_group(bundles, strategy="STRICT_SPREAD" if wish.hosts else "PACK")
        if group.wait(limit.remaining()):
            return group
        remove_placement_group(group)
        where = f"{wish.hosts} different nodes" if wish.hosts else "the cluster"
        raise TimeoutError(
            f"Ray found no place for {bundles} on {where} in time. The cluster has "
            f"{ray.cluster_resources()}, of which {ray.available_resources()} are free; ask for fewer workers, or "
            "raise placement_group_timeout_s if nodes are still to come"
        )

    def _start(self, wish: Wish, current: Any, limit: Timeout) -> None:
        actor_class = ray.remote(BaseHorovodWorker)
        for rank in range(wish.workers):
            bundle = rank // wish.per_host if wish.hosts else rank
            strategy = PlacementGroupSchedulingStrategy(
                current or self._own_group,
                placement_group_bundle_index=-1 if current else bundle,
                placement_group_capture_child_tasks=False,
            )
            options = {"num_cpus": wish.cpus, "num_gpus": wish.gpus, "scheduling_strategy": strategy}
            self._actors.append(actor_class.options(**options).remote(rank, wish.workers))
        nodes = fetch([actor.node_id.remote() for actor in self._actors], limit)
        order = sorted(range(len(nodes)), key=lambda rank: (nodes.index(nodes[rank]), rank))
        self._actors = [self._actors[index] for index in order]
        if wish.gpus:
            self._share_devices([nodes[index] for index in order], limit)

    def _share_devices(self, nodes: list[str], limit: Timeout) -> None:
        """Every rank sees the devices of all ranks of its node, and takes the one of its local rank."""
        given = fetch([actor.get_gpu_ids.remote() for actor in self._actors], limit)
        of_node: dict[str, list[str]] = defaultdict(list)
        for node, devices in zip(nodes, given, strict=True):
            of_node[node] += [str(device) for device in devices if str(device) not in of_node[node]]
        visible = [{"CUDA_VISIBLE_DEVICES": ",".join(of_node[node])} for node in nodes]
        fetch([actor.update_env_vars.remote(env) for actor, env in zip(self._actors, visible, strict=True)], limit)
