"""The back end "horo" of torch.distributed: ``dist.init_process_group("horo")``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

NAME = "horo"


def register() -> None:
    """Makes the back end known to torch: at ``import horo.torch``, or by torch itself where it reads entry points."""
    if dist.is_available() and not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: Any) -> dist.ProcessGroup:
    from horo.torch.c10d.process_group import create

    return create(options, backend_options)


def monitored_barrier(
    group: dist.ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier of a group of the back end horo that names who did not come.

    As ``torch.distributed.monitored_barrier``, which torch keeps for gloo: rank 0 of the group raises ``RuntimeError``
    with the first rank that did not come in time, or with all of them if ``wait_all_ranks``. The others raise too, but
    cannot know who is missing.
    """
    from horo.torch.c10d.process_group import group_of

    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        group_of(group).monitored_barrier(timeout, wait_all_ranks)
