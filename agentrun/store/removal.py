"""Removes a session: it is gone from the list in one step, and its files follow.

The step is the renaming to a name that no reader looks at, under the session's lock. Whoever dies behind it leaves a
hidden directory, which the next removal finishes; nothing brings the session back.
"""

from __future__ import annotations

import os
from itertools import count

from agentrun.errors import Denied, NotFound
from agentrun.store import layout
from agentrun.store.disk import Directory, speaking_of
from agentrun.store.writer import Writer

_OWN = 0o700


def hide(writer: Writer, sessions: Directory) -> None:
    """Takes the writer's session out of the tree, durable. `finish` frees the room, when the lock has been let go."""
    session_id = writer.session.session_id
    names = (f"{layout.REMOVED_PREFIX}{session_id}-{number}" for number in count(1))
    next(name for name in names if sessions.stat(name) is None and sessions.move(session_id, name))
    sessions.sync()


def finish(sessions: Directory) -> list[str]:
    """Frees the room of everything that was hidden, also of what a removal that died has left; returns the names."""
    hidden = sorted(name for name in sessions.names() if name.startswith(layout.REMOVED_PREFIX))
    for name in hidden:
        remove_tree(sessions, name)
    return hidden


def remove_tree(parent: Directory, name: str) -> None:
    """Removes the directory `name` with all that lies in it, following no link. Others may be at it, too.

    A tool may have nested directories deeper than descriptors or a recursion reach: what lies deep is moved up first.
    """
    try:
        if not parent.is_directory(name):
            parent.remove(name)
            return
        top = _to_empty(parent, name)
        while names := top.names():
            for each in names:
                _remove(top, each)
        parent.remove_directory(name)
    except NotFound:
        return


def _remove(top: Directory, name: str) -> None:
    try:
        if not top.is_directory(name):
            top.remove(name)
            return
        with _to_empty(top, name) as child:
            for each in child.names():
                if child.is_directory(each):
                    _move_up(child, each, top)
                else:
                    child.remove(each)
        top.remove_directory(name)
    except NotFound:
        return  # another process has removed it


def _move_up(child: Directory, name: str, top: Directory) -> None:
    _to_empty(child, name).close()  # a directory that may not be written cannot be moved either
    fresh = (f"{os.getpid()}-{number}" for number in count())
    next(each for each in fresh if top.stat(each) is None and child.move(name, each, into=top))


def _to_empty(parent: Directory, name: str) -> Directory:
    """The directory `name`, with the right to list and change it, which whoever made it may have taken away."""
    with speaking_of(parent.at(name)):
        # What has the name by now may be a link to another place, whose rights are not to be changed.
        if os.chmod in os.supports_follow_symlinks:
            os.chmod(name, _OWN, dir_fd=parent.fd, follow_symlinks=False)
        else:
            _chmod_by_descriptor(parent, name)
    return parent.open(name)


def _chmod_by_descriptor(parent: Directory, name: str) -> None:
    """Linux cannot pass a link over by name (chmod(2)), and opens what may not be read as a mere place (open(2))."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent.fd)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            raise Denied(f"{parent.at(name)} belongs to another user")
        os.chmod(f"/proc/self/fd/{fd}", _OWN)
    finally:
        os.close(fd)
