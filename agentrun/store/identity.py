"""Who this process is, in a way that no later process can be mistaken for it."""

from __future__ import annotations

import os
import pwd
import stat

from agentrun.errors import Denied
from agentrun.ids import checked_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentrun.records.codec import Doc
    from agentrun.records.lease import Owner
    from agentrun.store.disk import Directory


# Asks the kernel for the user namespace that owns another namespace (ioctl_ns(2)).
_NS_GET_USERNS = 0xB701


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


def not_yours(accounts: Directory, account: str) -> Denied:
    """The error for what lies in the place of this user's own account, in `accounts`, and belongs to somebody else."""
    path, uid = accounts.at(account), os.geteuid()
    found = accounts.stat(account)
    owner = user_name(found.st_uid) if found is not None else "somebody"
    said = f"{path}, where your own sessions should be, belongs to {owner}"
    if found is not None and stat.S_ISDIR(found.st_mode):
        hint = f"if what lies in it is yours, have it given to you: chown -R {uid} {path}"
    else:
        hint = f"it is no directory: have it taken away, by {owner} or an administrator: rm {path}"
    return Denied(f"{said}: nothing is read there, and nothing written", hint=hint)


def this_process() -> Owner:
    """The owner to record for what this process does."""
    from agentrun.records.lease import Owner  # here: whoever only looks is named by nobody

    pid = os.getpid()
    where = pid_namespace(), user_namespace()
    return Owner(account_name(), os.uname().nodename, pid, start_time(pid), boot_id(), *where)


def is_gone(owner: Owner) -> bool:
    """Whether it is certain that the process of `owner` has ended; of one elsewhere nobody can tell from here."""
    known = owner.start_time, owner.boot_id, owner.pid_namespace
    is_to_be_seen = None not in known and known[1:] == (boot_id(), pid_namespace())
    # Of processes that it may not look into, /proc may show none (proc(5), `hidepid`).
    is_to_be_seen = is_to_be_seen and user_namespace() in (None, owner.user_namespace)
    return is_to_be_seen and _is_dead(owner.pid, owner.start_time)


def is_of_here(owner: Owner) -> bool:
    """Whether exactly this process is to be seen here.

    Its number alone means nothing: it may be of another machine or container, or belong to another process by now.
    """
    is_known = owner.start_time is not None and owner.boot_id is not None
    is_same_machine = (owner.host, owner.boot_id) == (os.uname().nodename, boot_id())
    is_same_container = owner.pid_namespace in (None, pid_namespace())
    return is_known and is_same_machine and is_same_container and start_time(owner.pid) == owner.start_time


def number_here(owner: Owner) -> int | None:
    """The number by which the process of `owner` is to be seen here: in a container it has another one for itself."""
    if is_of_here(owner):
        return owner.pid
    known = owner.start_time, owner.boot_id, owner.pid_namespace
    if None in known or owner.boot_id != boot_id() or owner.pid_namespace == pid_namespace():
        return None
    return next((pid for pid in _pids() if _is_called_here(pid, owner)), None)


def _is_called_here(pid: int, owner: Owner) -> bool:
    is_same = start_time(pid) == owner.start_time and _innermost_number(pid) == owner.pid
    return is_same and namespace_of(pid) == owner.pid_namespace


def this_actor() -> Doc:
    """`{user host pid}`: who said or asked something."""
    return {"user": account_name(), "host": os.uname().nodename, "pid": os.getpid()}


def start_time(pid: int) -> int | None:
    """When `pid` started, in clock ticks since boot (field 22 of /proc/PID/stat); None if it is gone or unknown."""
    try:
        return int(_stat_fields(pid)[19])
    except (OSError, IndexError, ValueError):
        return None


def boot_id() -> str | None:
    """The kernel's name for this boot; None where there is no /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def pid_namespace() -> int | None:
    """The kernel's name for the container, or the machine, that this process's number is of (pid_namespaces(7))."""
    return _inode("/proc/self/ns/pid")


def user_namespace() -> int | None:
    """The kernel's name for the user namespace of this process, if it is below the one that owns its PID namespace.

    Then it may not look into processes of the same user that are not in it (user_namespaces(7)), though /proc lists
    them: as in a sandbox that shares its processes with the machine. None else.
    """
    import fcntl

    try:
        with open("/proc/self/ns/pid", "rb", buffering=0) as file:
            os.close(fcntl.ioctl(file, _NS_GET_USERNS))
    except PermissionError:  # the owner is out of its scope (ioctl_ns(2))
        return _inode("/proc/self/ns/user")
    except OSError:  # no /proc, or an old kernel
        return None
    return None


def namespace_of(pid: int) -> int | None:
    """As `pid_namespace`, of the process `pid`; None of one that is gone, or another user's."""
    return _inode(f"/proc/{pid}/ns/pid")


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def sees_namespace(namespace: object) -> bool:
    """Whether a process of this PID namespace is to be seen here; then all that are in it are."""
    return any(namespace_of(pid) == namespace for pid in _pids())


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def has_ended(pid: int) -> bool:
    """Whether the process `pid` is gone, or is only waited for by its parent to be taken notice of."""
    try:
        fields = _stat_fields(pid)
    except OSError:
        return True
    # A process whose first thread has ended looks like that while the others run on.
    return fields[0] in (b"Z", b"X") and fields[17] in (b"0", b"1")


def _is_dead(pid: int, started: int | None) -> bool:
    try:
        fields = _stat_fields(pid)
        # One that has ended and is still to be fetched by its parent does nothing any more.
        return fields[0] in (b"Z", b"X") or int(fields[19]) != started
    except FileNotFoundError:
        return True
    except (OSError, IndexError, ValueError):
        return False


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on, which is the state."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The second field is the command in parentheses and may hold anything, parentheses included.
        return file.read().rpartition(b")")[2].split()


def _innermost_number(pid: int) -> int | None:
    """The number that the process `pid` has for itself."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            numbers = next((line for line in file if line.startswith(b"NSpid:")), b"").split()
        return int(numbers[-1])
    except (OSError, IndexError, ValueError):
        return None
