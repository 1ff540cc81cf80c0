"""The lines of a log, each looked at: which are damaged, which numbers are missing or used twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from agentrun.errors import Denied
from agentrun.records.finding import Finding, Kind
from agentrun.store import layout
from agentrun.store.aside import kept_as
from agentrun.store.disk import Directory
from agentrun.store.log import Damage, Log, Torn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


# More damaged lines of one log than these are counted, not listed: a report of a million lines helps nobody.
LISTED = 100


def look_at_log(
    log: Log, there: Iterable[tuple[int, T | Damage | Torn]], number: Callable[[T], int], keep: Callable[[T], None]
) -> Iterator[Finding]:
    """The findings of `log`, in which `there` stands; every good record is handed to `keep`, in order.

    Memory does not grow with the log.
    """
    expected, damaged, after_damage = 1, 0, False
    for end, entry in there:
        if isinstance(entry, Torn):
            said = f"{entry.length} bytes of an append that was never acknowledged"
            yield Finding(Kind.TORN, log.path, said, entry.offset, entry.length)
            continue
        if isinstance(entry, Damage):
            damaged, after_damage = damaged + 1, True
            if damaged <= LISTED:
                yield _damaged(log, entry)
            continue
        seq = number(entry)
        if seq < expected:
            yield Finding(Kind.DUPLICATE, log.path, f"number {seq} stands there again, before byte {end}")
        elif seq > expected and not after_damage:
            # (Behind damage, the missing numbers are those of the damaged lines.)
            yield Finding(Kind.GAP, log.path, f"number {expected} is missing: {seq} follows, before byte {end}")
        expected, after_damage = max(expected, seq + 1), False
        keep(entry)
    if damaged > LISTED:
        yield Finding(Kind.DAMAGED, log.path, f"{damaged - LISTED} more damaged lines")


def look_at_kinds(parent: Directory, directories: Iterable[str], files: Iterable[str]) -> Iterator[Finding]:
    """What lies in the place of a directory or file that need not be there, and cannot be opened as one."""
    for name in directories:
        try:
            if parent.stat(name) is not None:
                parent.open(name).close()
        except Denied as error:
            yield Finding(Kind.UNREADABLE, parent.at(name), error.message.removeprefix(f"{parent.at(name)}: "))
    for name in files:
        try:
            fd = parent.open_file(name)
            if fd is not None:
                os.close(fd)
        except Denied as error:
            yield Finding(Kind.UNREADABLE, parent.at(name), error.message.removeprefix(f"{parent.at(name)}: "))


def _damaged(log: Log, damage: Damage) -> Finding:
    name = layout.damaged_name(log.name, damage.offset)
    aside = kept_as(log.directory, name, log.bytes_at(damage.offset, damage.length))
    if aside is not None:
        return Finding(Kind.SET_ASIDE, log.path, f"damaged, kept in {aside}", damage.offset, damage.length)
    return Finding(Kind.DAMAGED, log.path, damage.reason, damage.offset, damage.length)
