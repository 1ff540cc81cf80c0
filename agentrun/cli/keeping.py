"""`rename`, `archive`, `unarchive`, `fork` and `rm`: what is done with a session as a whole."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.commands import sessions
from agentrun.commands.names import Target, find_session
from agentrun.errors import NotFound, UsageError
from agentrun.records.session import Session
from agentrun.render.json import json_line
from agentrun.render.plain import about_text, question_text


def rename(options: Options, name: str, title: str, expect_revision: int | None) -> int:
    """Gives a session another title."""
    target = find_session(options.place().tree, name)
    session = sessions.rename(target.session, title, expect_revision)
    _say_what_it_is(options, session)
    return exits.OK


def archive(options: Options, name: str, *, archived: bool) -> int:
    """Puts a session away, or takes it back. A run that goes on is named: it is not stopped."""
    target = find_session(options.place().tree, name)
    session = sessions.archive(target.session, archived=archived)
    _say_what_it_is(options, session)
    active = target.session.active()
    if archived and active is not None and not options.json:
        run = f"{session.session_id}/{active}"
        output.note(f"{run} goes on; nothing was stopped", f"stop it with: agentrun cancel {run}")
    return exits.OK


def fork(options: Options, name: str, at: int | None) -> int:
    """Makes a session that begins with what was said in another one, and prints its id."""
    place = options.place()
    source = find_session(place.tree, name).session
    forked = sessions.fork(place.tree, source, at)
    session = forked.session
    if options.json:
        output.out_bytes(json_line({"session": session.to_doc()}))
    else:
        output.out(f"{session.session_id}\n")
    if forked.is_cut and not options.json:
        output.note(
            f"the first {session.copied} messages; what comes after is of a run that goes on",
            f"take more with: agentrun fork {source.session_id} --at SEQ",
        )
    return exits.OK


def remove(options: Options, name: str, *, yes: bool, force: bool) -> int:
    """Removes a session with all its files, once somebody has said so."""
    place = options.place()
    try:
        target = find_session(place.tree, name)
    except NotFound:
        # It may be that one whose removal was interrupted: it is gone, and its room is to be freed.
        place.tree.finish_removals()
        raise
    if not yes and not _is_agreed(options, target):
        if options.json:
            output.out_bytes(json_line({"removed": None}))
        output.note("nothing was removed")
        return exits.OK
    sessions.remove(place.tree, target.session, force=force)
    if options.json:
        output.out_bytes(json_line({"removed": target.session.session_id}))
    elif output.is_terminal(sys.stderr):
        output.note(f"{target.session.session_id} is removed")
    return exits.OK


def _is_agreed(options: Options, target: Target) -> bool:
    session = target.session.read()
    if not (output.is_terminal(sys.stdin) and output.is_terminal(sys.stderr)):
        raise UsageError(
            f"nobody is here to be asked whether {session.session_id} may be removed",
            hint=f"say so with: agentrun rm {session.session_id} --yes",
        )
    counts = (target.session.messages.last_seq(), len(target.session.run_ids()))
    output.say(question_text(session, *counts, output.screen_of(sys.stderr, options)))
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def _say_what_it_is(options: Options, session: Session) -> None:
    if options.json:
        output.out_bytes(json_line({"session": session.to_doc()}))
    elif output.is_terminal(sys.stderr):
        output.say(about_text(session, output.screen_of(sys.stderr, options)))
