"""A session, or one run of it, from the first line to the last: a run at a time, an operation at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agentrun.commands.children import child_views
from agentrun.commands.names import Target
from agentrun.commands.place import Place
from agentrun.commands.show import ALL, damage, run_timeline
from agentrun.errors import AgentrunError
from agentrun.named import NamedTuple
from agentrun.records.message import Message
from agentrun.records.session import Session
from agentrun.records.timeline import RunRecord
from agentrun.store.runs import RunDir
from agentrun.store.sessions import SessionDir


class Whole(NamedTuple):
    """What was asked for, oldest first. `loose` are messages of the session that belong to none of its own runs."""

    session: Session
    loose: Iterator[Message]
    runs: Iterator[RunRecord]


def whole(place: Place, target: Target, on_damage: list[str]) -> Whole:
    """The session, or the run that was named. What cannot be read is in `on_damage` when all was gone through.

    Raises CorruptRecord if that is the session itself, or the run that was named.
    """
    return Whole(target.session.read(), _loose(target), records(place, target, on_damage))


def records(
    place: Place,
    target: Target,
    on_damage: list[str],
    read: Callable[[SessionDir, RunDir], RunRecord] = run_timeline,
    *,
    newest: int = ALL,
) -> Iterator[RunRecord]:
    """The run that was named, or the `newest` of all, oldest first."""
    names = [target.run_id] if target.run_id else target.session.run_ids()[:newest][::-1]
    for run_id in names:
        try:
            run_dir = target.session.run(run_id)
            record = read(target.session, run_dir)
        except AgentrunError as error:
            if target.run_id:
                raise
            on_damage.append(str(error))
            continue
        run = record.detail.view.run
        if run.children:
            record = record._replace(detail=record.detail._replace(children=child_views(place, run, on_damage)))
        yield record
        # Now that it was gone through: until then not all of it was read.
        on_damage.extend(str(each) for each in damage(target.session, run_dir) if str(each) not in on_damage)


def _loose(target: Target) -> Iterator[Message]:
    if target.run_id:
        return
    session = target.session
    copied, own = session.read().copied, set(session.run_ids())
    for message in session.lasting_messages():
        if message.seq <= copied or message.run_id not in own:
            yield message
