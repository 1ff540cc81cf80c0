"""Commands that a tool of a run starts: what they begin knows its parent, and none of them waits for itself.

Most commands are started by no tool, and load nothing of this.
"""

from __future__ import annotations

from agentrun.cli import output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentrun.commands.names import Target
    from agentrun.commands.parents import Parent
    from agentrun.commands.place import Place


def announced_parent(place: Place, target: Target, *, may_begin: bool, waits: bool) -> Parent | None:
    """The run of the tool that started this command, once it knows of the run that may begin in that session.

    None if none may. The user is told why what the environment names is no parent. Raises ImpossibleMode for a command
    that `waits` for a run above it, and what `announce` raises.
    """
    if not (_is_in_a_tool(place) and (may_begin or waits)):
        return None
    from agentrun.commands.parents import announce, check_not_itself, origin_of

    parent, note = origin_of(place)
    if note:
        output.note(note)
    if parent is None:
        return None
    if waits:
        # Whatever is said: in the foreground its sender watches the run, which waits for the sender.
        check_not_itself(parent, target.session.session_id)
    if not may_begin:
        return None
    announce(place, parent, target.session.session_id, target.session.messages.next_seq() - 1)
    return parent


def check_waits_for_others(place: Place, targets: Iterable[Target]) -> None:
    """Raises ImpossibleMode if one of the runs is one of which this command is a part: it would wait for itself."""
    if not _is_in_a_tool(place):
        return
    from agentrun.commands.parents import check_not_own, origin_of

    parent = origin_of(place).parent
    if parent is not None:
        for target in targets:
            check_not_own(parent, target.run())


def _is_in_a_tool(place: Place) -> bool:
    return bool(place.environment.get("AGENTRUN_RUN"))
