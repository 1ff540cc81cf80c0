"""What can be seen of an executor that has its run and lets its lease run out: suspended, kept waiting, or silent.

None of this decides anything. It is said so that a person looks in the right place: a healthy executor that has no
room on its disk is not helped by another one.
"""

from __future__ import annotations

import os

from agentrun.records.lease import Lease
from agentrun.records.views import Late
from agentrun.store.disk import Directory, speaking_of
from agentrun.store.holders import look_at
from agentrun.store.identity import number_here
from agentrun.store.locks import lock_holder


def lateness(session: Directory, lease: Lease) -> Late:
    """Why the owner of `lease`, which has run out, may not have renewed it, as far as this process can see."""
    owner = lease.owner
    pid = number_here(owner)
    if pid is None:
        return Late("elsewhere", str(owner))
    if look_at(pid)[1]:
        return Late("suspended", str(owner), pid)
    keeper = lock_holder(session)
    if keeper is not None and keeper != pid:
        name, is_suspended = look_at(keeper)
        return Late("kept_waiting", str(owner), pid, {"pid": keeper, "name": name, "suspended": is_suspended})
    return Late("silent" if _has_room(session) else "no_room", str(owner), pid)


def _has_room(directory: Directory) -> bool:
    with speaking_of(directory.path):
        found = os.statvfs(directory.fd)
    # A file system without a fixed number of files says that it has 0 of them.
    return found.f_bavail > 0 and (found.f_favail > 0 or found.f_files == 0)
