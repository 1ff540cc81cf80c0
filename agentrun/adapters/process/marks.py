"""What tells the processes of a run from all others: variables in the environment that they were started with.

A tree may be known to them by another path than to us: a container has its own, and `mv` gave the tree a new one while
they ran. So what is a path in the marker is compared by where it leads, seen from where the process lives.
"""

import os
from collections.abc import Collection, Mapping
from typing import NamedTuple

from agentrun.adapters.process.procfs import all_procs, ancestors, proc_file


class Place(NamedTuple):
    """A variable of the marker that is the path of a directory, and which one that is (None: none, any more).

    `inside` is what such a directory has of the run, as a path in it.
    """

    name: bytes
    path: bytes
    identity: tuple[int, int] | None
    inside: bytes = b""


class Mark(NamedTuple):
    """The marker as an environment holds it: `items` have to be there as they are, `places` have to lead there."""

    items: frozenset[bytes]
    places: tuple[Place, ...]


def mark_of(marker: Mapping[str, str], inside: str = "") -> Mark:
    """`marker` as `carries` compares it; values that are absolute paths are places.

    `inside` is what lies in such a place if it is one of a run with these names.
    """
    paths = {key: value for key, value in marker.items() if value.startswith("/")}
    items = frozenset(os.fsencode(f"{key}={value}") for key, value in marker.items() if key not in paths)
    return Mark(items, tuple(_place(key, value, inside) for key, value in paths.items()))


def carries(pid: int, mark: Mark) -> bool:
    """Whether the environment that the process was started with bears the mark; an empty one is borne by none."""
    if not (mark.items or mark.places):
        return False
    environment = proc_file(pid, "environ").split(b"\0")
    # Of nearly every process of the machine the first says no, and the second asks the disk.
    return mark.items.issubset(environment) and all(_leads(pid, environment, each) for each in mark.places)


def others_running(module: str, marker: Mapping[str, str]) -> set[int]:
    """The processes that run as `python -m MODULE`, but for the caller and what it or a marked process descends from.

    A process that was started from a marked one and took off its marker is one of them.
    """
    words, mark, procs = b"-m\0" + module.encode() + b"\0", mark_of(marker), all_procs()
    running = {pid for pid in procs if words in proc_file(pid, "cmdline")} - ancestors(procs, os.getpid())
    # Environments are the dear part, and mostly there is nobody else.
    for pid in [pid for pid in procs if running and carries(pid, mark)]:
        running -= ancestors(procs, pid)
    return running


def _place(name: str, path: str, inside: str) -> Place:
    try:
        found = os.stat(path)
    except OSError:
        return Place(os.fsencode(name), os.fsencode(path), None)
    return Place(os.fsencode(name), os.fsencode(path), (found.st_dev, found.st_ino), os.fsencode(inside))


def _leads(pid: int, environment: Collection[bytes], place: Place) -> bool:
    """Whether the variable of the process leads to `place`."""
    start = place.name + b"="
    path = next((item[len(start) :] for item in environment if item.startswith(start)), None)
    if path is None or place.identity is None:
        return path == place.path
    try:
        found = os.stat(_as_seen_by(pid, path))
    except (FileNotFoundError, NotADirectoryError):
        # The tree was moved away from under it, or the process is just gone. The rest of the marker has the names of a
        # session and a run, which no two trees give to different ones, unless a session's name was chosen.
        return True
    except OSError:
        return path == place.path  # nobody lets us look
    if (found.st_dev, found.st_ino) == place.identity:
        return True
    return place.inside != b"" and not _is_another_s(pid, path, place)


def _is_another_s(pid: int, path: bytes, place: Place) -> bool:
    """Whether the other directory to which its variable leads has a run of these names, too: then that is its own.

    Else something was put over the tree, or in its place, since the process was started: an empty file system, in a
    sandbox of the tool's own.
    """
    try:
        os.stat(os.path.join(_as_seen_by(pid, path), place.inside))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass  # nobody lets us look
    return True


def _as_seen_by(pid: int, path: bytes) -> bytes:
    """`path` in the process's own view of the file system (proc(5), `root`): in a container it leads elsewhere."""
    return os.path.join(b"/proc/%d/root" % pid, path.lstrip(b"/"))
