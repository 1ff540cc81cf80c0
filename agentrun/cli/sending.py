"""`send`, `steer`, `approve` and `deny`: say something, and see it executed."""

from __future__ import annotations

import sys

from agentrun.cli import exit as exits
from agentrun.cli import output
from agentrun.cli.family import announced_parent
from agentrun.cli.options import Options
from agentrun.commands import control
from agentrun.commands.execution import make_order
from agentrun.commands.inputs import MODES, MOST_BYTES, IfBusy, too_long
from agentrun.commands.names import Target, find, run_name
from agentrun.commands.place import Place
from agentrun.errors import UsageError
from agentrun.named import NamedTuple
from agentrun.pieces import read_to
from agentrun.records.codec import Doc
from agentrun.records.message import PROMPT, STEER
from agentrun.records.views import Accepted
from agentrun.render.standing import accepted_line, accepted_text, hints_after_accept

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import BinaryIO

    from agentrun.commands.attaching import AttachedFile


class Words(NamedTuple):
    """A text as it stands on the command line: words of which `-` is standard input, and files."""

    words: list[str]
    files: list[str]


class Asked(NamedTuple):
    """The options of `send`."""

    mode: str | None = None
    if_busy: IfBusy | None = None
    if_ended: str | None = None
    key: str | None = None
    expect_seq: int | None = None
    agent: str | None = None
    references: tuple[str, ...] = ()
    timeout: str | None = None
    detach: bool = False
    files: tuple[str, ...] = ()


def send(options: Options, session: str, words: Words, asked: Asked) -> int:
    """Accepts an input, then executes or watches its run to the end unless it is detached."""
    text = read_text(words, "send")
    place = options.place()
    target = find(place.tree, session)
    parent = _announced_parent(place, target, asked)
    saying = _saying(place, target, text, asked)._replace(parent_run=parent)
    acceptance = control.say(place, target, saying)
    joined = Target(target.session, acceptance.accepted.run_id)
    _say_if_archived(options, target)
    if asked.detach:
        control.drive_on(place, acceptance)
        _acknowledge_detached(options, acceptance.accepted)
        return OK
    return _see_through(options, place, joined, acceptance)


def _see_through(options: Options, place: Place, joined: Target, acceptance: control.Acceptance) -> int:
    """Executes the run of an accepted input here, or watches it where somebody else does; its exit code."""
    from agentrun.cli.executing import collect_signals, execute_here

    signals = collect_signals() if acceptance.liveness is not None else []
    from agentrun.cli.audience import audience_for

    audience = audience_for(options, patient=acceptance.liveness is None)
    if acceptance.liveness is None:
        from agentrun.cli.watching import watch

        _acknowledge(options, acceptance)
        return watch(options, joined, audience, with_report=acceptance.began)
    # From here on the run is ours, and goes on whoever reads of it.
    audience.outlet.attempt(lambda: _acknowledge(options, acceptance))
    return execute_here(options, place, joined, acceptance.liveness, audience, signals, with_report=acceptance.began)


def _announced_parent(place: Place, target: Target, asked: Asked) -> Doc | None:
    """The run of the tool that started this command. It knows, before there is one, of the run that may begin."""
    may_begin = asked.mode in (None, PROMPT) or asked.if_ended is not None
    parent = announced_parent(place, target, may_begin=may_begin, waits=not asked.detach)
    return parent.to_doc() if parent else None


def steer(options: Options, session: str, words: Words, *, key: str | None, if_ended: str | None) -> int:
    """Accepts a steer; a prompt that it became because the run had ended is executed detached."""
    place = options.place()
    target = find(place.tree, session)
    asked = Asked(mode=STEER, key=key, if_ended=if_ended, detach=True)
    saying = _saying(place, target, read_text(words, "steer"), asked)._replace(drive=if_ended is not None)
    saying = saying._replace(parent_run=_announced_parent(place, target, asked))
    acceptance = control.say(place, target, saying)
    control.drive_on(place, acceptance)
    _print_accepted(options, acceptance.accepted)
    return OK


def settle(options: Options, session: str, operation: str | None, *, approved: bool, note: str | None) -> int:
    """Gives or refuses an approval; the run goes on, detached if nobody executes it."""
    place = options.place()
    target = find(place.tree, session)
    acceptance = control.settle(place, target, operation, approved, note)
    control.drive_on(place, acceptance)
    _print_accepted(options, acceptance.accepted)
    return OK


def read_text(words: Words, command: str) -> str:
    """The text that the command line gives: its words, then standard input for `-`, then the files.

    Blank lines between the parts. Raises UsageError if there is none, or a file cannot be read.
    """
    said = [word for word in words.words if word != "-"]
    if len(said) > 1:
        raise UsageError("one text, please: put it in quotes", hint=f'agentrun {command} SESSION "all of it"')
    parts = list(said)
    if "-" in words.words:
        parts.append(_standard_input())
    parts += [_file(path) for path in words.files]
    text = "\n\n".join(part.rstrip("\n") if len(parts) > 1 else part for part in parts)
    if not text.strip():
        raise UsageError(
            f"there is no text to {command}",
            hint=f"give it as an argument, or as - for standard input: agentrun {command} SESSION TEXT",
        )
    return text


OK = exits.OK


def _saying(place: Place, target: Target, text: str, asked: Asked) -> control.Saying:
    if asked.mode is not None and asked.mode not in MODES:
        raise UsageError(f"--mode is one of {', '.join(MODES)}, not {asked.mode!r}")
    if asked.if_ended not in (None, "prompt"):
        raise UsageError(f"--if-ended can only be prompt, not {asked.if_ended!r}")
    if asked.if_busy is not None and asked.mode not in (None, "prompt"):
        raise UsageError(f"--if-busy says what a prompt does, so it does not go with --mode {asked.mode}")
    seconds = _duration(asked.timeout)
    agent = asked.agent or target.session.read().agent
    return control.Saying(
        said=control.said(text, asked.key),
        order=lambda: make_order(place, agent, seconds),
        mode=asked.mode,
        if_busy=asked.if_busy,
        if_ended_prompt=asked.if_ended is not None,
        expect_seq=asked.expect_seq,
        references=tuple(run_name(each) for each in asked.references),
        files=_attached(place, asked.files),
        agent=asked.agent,
        stay=not asked.detach,
    )


def _attached(place: Place, names: tuple[str, ...]) -> tuple[AttachedFile, ...]:
    if not names:
        return ()
    from agentrun.commands.attaching import read_files

    return read_files(place.tree, names)


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    from agentrun.config import parse_duration

    seconds = parse_duration(text)
    if seconds <= 0:
        raise UsageError("a run needs some time: --timeout must be longer than 0s")
    return seconds


def _acknowledge(options: Options, acceptance: control.Acceptance) -> None:
    """Says that an input was accepted; a pipe reads that on standard output only if no report is to follow."""
    accepted = acceptance.accepted
    if options.json:
        output.out_json(accepted.to_doc())
    elif output.is_terminal(sys.stdout):
        output.out(accepted_text(accepted, output.screen_of(sys.stdout, options)))
    elif acceptance.began:
        output.say_in_passing(accepted_text(accepted, output.screen_of(sys.stderr, options)))
    else:
        output.out(accepted_line(accepted))


def _acknowledge_detached(options: Options, accepted: Accepted) -> None:
    if options.json:
        output.out_json(accepted.to_doc())
        return
    output.out(f"{accepted.session_id}/{accepted.run_id}\n")
    output.say(accepted_text(accepted, output.screen_of(sys.stderr, options)))
    if output.is_terminal(sys.stdout):
        output.say(hints_after_accept(accepted, output.screen_of(sys.stderr, options)))


def _say_if_archived(options: Options, target: Target) -> None:
    """It is no obstacle, but whoever looks for the session in the list would not find it."""
    if not options.json and output.is_terminal(sys.stderr) and target.session.read().archived:
        name = target.session.session_id
        output.note(f"{name} is archived, and stays so", f"list it again with: agentrun unarchive {name}")


def _print_accepted(options: Options, accepted: Accepted) -> None:
    if options.json:
        output.out_json(accepted.to_doc())
    elif output.is_terminal(sys.stdout):
        output.out(accepted_text(accepted, output.screen_of(sys.stdout, options)))
    else:
        output.out(accepted_line(accepted))


def _standard_input() -> str:
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("standard input is closed, so - reads nothing")
    return _decoded(sys.stdin.buffer)


def _file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return _decoded(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{path!r} cannot be read: {reason}") from error


def _decoded(file: BinaryIO) -> str:
    """All that `file` has, as text. It may have no end: no more is read than an input can be. Raises UsageError."""
    content = read_to(MOST_BYTES, file.read)
    if content is None:
        raise too_long()
    return content.decode("utf-8", "surrogateescape")
