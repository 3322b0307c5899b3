"""Which hosts an elastic job may use now, and how many ranks each may have: what tells a driver."""

from __future__ import annotations

import abc
import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping

from horo.legacy.hosts import HostInfo

# As `horo run --host-discovery-script` has it.
SCRIPT_SECONDS = 10.0
_MOST_PRINTED = 1 << 20
_MOST_COMPLAINT = 200
_HOST_NAME = re.compile(r"[\w.:%\[\]-]+", re.ASCII)  # Addresses of IPv6 too.


class HostDiscovery(abc.ABC):
    """Asked again and again for as long as a job runs."""

    @abc.abstractmethod
    def find_available_hosts_and_slots(self) -> Mapping[str, int]:
        """Names of hosts, and how many ranks each may have now."""


class FixedHosts(HostDiscovery):
    """What it was told last."""

    def __init__(self, available_hosts: Mapping[str, int]) -> None:
        self._hosts = dict(available_hosts)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        return dict(self._hosts)

    def set(self, available_hosts: Mapping[str, int]) -> None:
        self._hosts = dict(available_hosts)


class HostDiscoveryScript(HostDiscovery):
    """What a command of the shell prints: "host:4" or "host", a line each. A host without a number has `slots`. It has
    `limit` seconds; what fails, takes longer or prints something else is a RuntimeError."""

    def __init__(self, discovery_script: str, slots: int = 1, limit: float = SCRIPT_SECONDS) -> None:
        self._script = discovery_script
        self._slots = slots
        self._limit = limit

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """None at all where it prints nothing."""
        found: dict[str, int] = {}
        for line in self._run().splitlines():
            words = line.partition("#")[0].strip()
            if words:
                host = self._host_of(words)
                before = found.setdefault(host.hostname, host.slots)
                if before != host.slots:
                    raise self._trouble(f"names {host.hostname} with {before} and with {host.slots} slots")
        return found

    def _host_of(self, words: str) -> HostInfo:
        try:
            host = HostInfo.from_string(words, self._slots)
            if not _HOST_NAME.fullmatch(host.hostname):
                raise ValueError(f"{words!r} is no name of a host")
            return host
        except ValueError as error:
            raise self._trouble(f"printed what is no list of hosts: {error}") from None

    def _run(self) -> str:
        # Files, since somebody whom the script has left behind would keep a pipe open.
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaint:
            process = subprocess.Popen(
                ["/bin/sh", "-c", self._script],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=complaint,
                start_new_session=True,
            )
            try:
                code = process.wait(self._limit)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise self._trouble(f"took more than {self._limit:g} s, and was killed") from None
                raise
            if code != 0:
                complaint.seek(0)
                words = complaint.read(_MOST_PRINTED).decode(errors="replace").strip().splitlines()
                said = f", and said: {words[-1][:_MOST_COMPLAINT]}" if words else ""
                how = f"exit code {code}" if code > 0 else f"signal {-code}"
                raise self._trouble(f"ended with {how}{said}")
            printed.seek(0)
            return printed.read(_MOST_PRINTED).decode(errors="replace")

    def _trouble(self, what: str) -> RuntimeError:
        return RuntimeError(f"the discovery script {self._script!r} {what}")


__all__ = ["SCRIPT_SECONDS", "FixedHosts", "HostDiscovery", "HostDiscoveryScript"]
