"""Checking what is on disk, and putting right what can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun.commands.place import Place
from agentrun.errors import AgentrunError
from agentrun.records.finding import Finding
from agentrun.store.check import check_session, check_tree, to_nobody


def check(
    place: Place, session_id: str | None, *, repair: bool, on_refusal: Callable[[AgentrunError], None] = to_nobody
) -> Iterator[Finding]:
    """Findings as they are met: of one session, or of the account and all its sessions. Changes nothing by itself.

    With `repair`, what follows from the records is made again and damaged bytes are kept aside; such findings say so.
    What keeps it from that, a full disk say, goes to `on_refusal`, once for each session.
    """
    if session_id is not None:
        yield from check_session(place.tree, session_id, repair=repair, on_refusal=on_refusal)
        return
    yield from check_tree(place.tree, repair=repair, on_refusal=on_refusal)
    for each in sorted(place.tree.session_ids()):
        yield from check_session(place.tree, each, repair=repair, on_refusal=on_refusal)
