"""Whether a configuration can only have come from those whom its reader trusts: it names commands, executed as him.

What ssh asks of its own files (StrictModes in sshd_config(5)), where it is certain to be wrong: that a group may write
is normal where each user has a group of his own (umask 002), and others share a group to share their files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

_ROOT = 0
# Whoever may write into the directory can put a file there: of a tree's, which several may share, a group as well.
_BY_ALL, _BY_GROUP = 0o002, 0o020
_OF_A_TREE = "accounts"
# As many links as the system follows (path_resolution(7)).
_MOST_LINKS = 40


def check_trusted(path: str, found: os.stat_result) -> None:
    """Raises OSError unless nobody but root, this user and who he shares with can have written what `found` is.

    `found` is the open file, `path` how it was reached.
    """
    in_tree = os.path.isdir(os.path.join(os.path.dirname(path) or os.curdir, _OF_A_TREE))
    _check_writers(path, found, in_tree)
    writers = _BY_ALL | _BY_GROUP if in_tree else _BY_ALL
    folder = os.stat(os.path.dirname(path) or os.curdir)
    if folder.st_mode & writers:
        _check_owner(path, os.lstat(path), folder)
        _check_owner(path, found, folder)
    for each, directory, entry in _way(path):
        if directory.st_mode & _BY_ALL:
            _check_owner(each, entry, directory)
            if not directory.st_mode & stat.S_ISVTX:
                # What lies in it may have been another thing when the file was opened.
                _check_owner(path, found, directory)


def _check_writers(path: str, found: os.stat_result, in_tree: bool) -> None:
    if found.st_mode & _BY_ALL:
        who = "everybody"
    elif in_tree and found.st_mode & _BY_GROUP and found.st_gid != _own_group():
        who = f"its group (gid {found.st_gid})"
    else:
        return
    import shlex

    raise OSError(
        errno.EPERM,
        f"{who} may write it (mode {stat.S_IMODE(found.st_mode):04o}), and could have commands executed as you; "
        f"look at what it says, then: chmod go-w {shlex.quote(path)}",
    )


def _check_owner(path: str, entry: os.stat_result, directory: os.stat_result) -> None:
    """Raises OSError if `entry` of a `directory` into which others may write is another user's."""
    if entry.st_uid not in (_ROOT, os.geteuid(), directory.st_uid):
        what = path if stat.S_ISDIR(entry.st_mode) else "it"
        raise OSError(
            errno.EPERM,
            f"{what} belongs to another user (uid {entry.st_uid}), who could have commands executed as you; "
            "copy it to a place of your own and name that with --config, or have it taken away",
        )


def _own_group() -> int:
    """The group that the system gives this user's files, which is his alone where each has one."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_gid
    except KeyError:
        return os.getegid()


def _way(path: str) -> Iterator[tuple[str, os.stat_result, os.stat_result]]:
    """What is on the way to `path`, each link and what it leads through too: its path, its directory, and itself."""
    # A process whose directory was removed is in none (getcwd(2)), and needs none for a whole path.
    whole = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    current, rest = os.sep, whole.split(os.sep)[::-1]
    links = 0
    while rest:
        name = rest.pop()
        if name in ("", os.curdir):
            continue
        if name == os.pardir:
            current = os.path.dirname(current)  # which has no links in it
            continue
        each = os.path.join(current, name)
        entry = os.lstat(each)
        yield each, os.lstat(current), entry
        if not stat.S_ISLNK(entry.st_mode):
            current = each
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(each)
        current = os.sep if target.startswith(os.sep) else current
        rest += target.split(os.sep)[::-1]
