"""What create_settings() of the executors makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from horo.discovery import HostDiscovery
from horo.driver import Limits
from horo.legacy.timeout import Timeout


@dataclass
class MiniSettings:
    """What RayExecutor.create_settings() makes."""

    nics: set[str] | None = None
    verbose: int = 1
    key: str | None = field(default=None, repr=False)
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    timeout_s: int = 300
    placement_group_timeout_s: int = 100

    @property
    def start_timeout(self) -> Timeout:
        return Timeout(self.timeout_s, "Timed out: {activity}. Look for busy or lost nodes, or raise timeout_s.")


@dataclass
class ElasticSettings(MiniSettings):
    """What ElasticRayExecutor.create_settings() makes."""

    min_num_proc: int = 1
    max_num_proc: int | None = None
    reset_limit: int | None = None
    elastic_timeout: float = 600
    cooldown_range: Sequence[float] | None = None
    discovery: HostDiscovery | None = field(default=None, repr=False)

    @property
    def limits(self) -> Limits:
        return Limits(self.min_num_proc, self.max_num_proc, self.elastic_timeout, self.reset_limit)
