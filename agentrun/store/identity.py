"""Who this process is, in a way that no later process can be mistaken for it."""

from __future__ import annotations

import os
import pwd

from agentrun.errors import Denied
from agentrun.ids import checked_id
from agentrun.records.codec import Doc
from agentrun.records.lease import Owner


def account_name() -> str:
    """The account of this process: the name of its effective user, never what `$USER` says."""
    uid = os.geteuid()
    try:
        return checked_id(user_name(uid), "account")
    except Denied:
        return f"uid-{uid}"


def user_name(uid: int) -> str:
    """The name of the user `uid`, for display."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def this_process() -> Owner:
    """The owner to record for what this process does."""
    pid = os.getpid()
    return Owner(account_name(), os.uname().nodename, pid, start_time(pid), boot_id())


def this_actor() -> Doc:
    """`{user host pid}`: who said or asked something."""
    return {"user": account_name(), "host": os.uname().nodename, "pid": os.getpid()}


def start_time(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot (field 22 of /proc/PID/stat); None if it is gone or unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the command in parentheses and may hold anything, parentheses included.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def boot_id() -> str | None:
    """The kernel's name for this boot; None where there is no /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None
