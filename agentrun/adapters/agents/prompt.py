"""What an agent from outside is told: the new inputs, and what it cannot know by itself.

An agent that keeps the conversation hears only what is new. One that forgets is told the conversation so far, so that
each of its invocations goes on where the last one was.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentrun.agent.context import not_passed_text
from agentrun.agent.protocols import Stretch
from agentrun.agent.transcript import Transcript
from agentrun.agent.turn import Turn

# Characters of the conversation that are told again: of what is longer, the newest. An argument of a program takes
# 128 KiB at most (execve(2)), and so do the contexts of small models.
TOLD_AGAIN = 60_000

INTERRUPTED = "[Your last turn was interrupted half-way. Look what it has done already before you go on.]"


def prompt_text(stretch: Stretch, transcript: Transcript, *, remembers: bool) -> str:
    """The prompt of the turn that begins now, its inputs delivered. `remembers`: the agent has what came before."""
    answered, fresh = _answered_and_fresh(transcript)
    parts = [] if remembers else list(_so_far(stretch, answered))
    if not answered:
        parts += _reports(stretch)
    allowed = list(_permissions(answered))
    if allowed or any(turn.request and turn is not fresh[-1] for turn in fresh):
        parts += [INTERRUPTED, *allowed]
    if answered and (not_passed := not_passed_text(answered[-1])):
        parts.append(not_passed)
    parts += [stretch.input(seq).text for turn in fresh for seq in sorted(turn.inputs)]
    return "\n\n".join(parts)


def _permissions(answered: list[Turn]) -> Iterator[str]:
    """What the user said to the calls that the agent waited with when it was stopped."""
    for ask in answered[-1].asks if answered else ():
        if ask.operation_id is not None and ask.answered:
            call = next(
                (each for turn in answered for each in turn.calls if each.operation_id == ask.operation_id), None
            )
            name = call.name if call else ask.operation_id
            note = f": {ask.note}" if ask.note else ""
            yield f"[The user has {'allowed' if ask.approved else 'denied'} {name}{note}]"


def _answered_and_fresh(transcript: Transcript) -> tuple[list[Turn], list[Turn]]:
    """The turns up to the last reply, and those after it: their inputs have had no reply yet."""
    count = max((number for number, turn in enumerate(transcript.turns, start=1) if turn.reply), default=0)
    return transcript.turns[:count], transcript.turns[count:]


def _so_far(stretch: Stretch, answered: list[Turn]) -> Iterator[str]:
    said = list(_said(stretch, answered))
    kept: list[str] = []
    room = TOLD_AGAIN
    for line in reversed(said):
        room -= len(line)
        if room < 0:
            kept.append("[...]")
            break
        kept.append(line)
    if kept:
        yield "\n\n".join(["[The conversation so far]", *reversed(kept), "[Now the user says]"])


def _said(stretch: Stretch, answered: list[Turn]) -> Iterator[str]:
    conversation = stretch.conversation
    if conversation.summary:
        yield f"[Summary of what was said before]\n{conversation.summary}"
    for message in conversation.messages:
        who = {"user": "User: ", "assistant": "You: "}.get(message.role, f"[Note on {message.run_id}] ")
        yield who + message.text
    for turn in answered:
        for seq in sorted(turn.inputs):
            yield f"User: {stretch.input(seq).text}"
        if turn.reply:
            yield "You: " + f"{turn.reply.text}\n\n{turn.reply.question or ''}".strip()


def _reports(stretch: Stretch) -> Iterator[str]:
    for run_id, report in stretch.conversation.reports.items():
        yield f"[The report of {run_id}, which the user cites]\n{report}\n[End of the report of {run_id}]"
