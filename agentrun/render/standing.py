"""How a run stands and what became of an input, each in a line or a few: what commands say that do something.

Every function returns complete lines, newline included, and everything in them is safe for a terminal. What to type
next is loaded where it is said: the commands that are typed all day mostly say none of it.
"""

from __future__ import annotations

from agentrun.render.safe import shown_line
from agentrun.render.theme import Screen, Span, Style, line, lines_text, say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentrun.records.operation import Operation
    from agentrun.records.views import Accepted, RunView


def standing_text(view: RunView, screen: Screen) -> str:
    """`SESSION/RUN STATUS`, where the status says towards which end a run winds down."""
    name = f"{say(view.run.session_id, screen)}/{say(view.run.run_id, screen)}"
    return lines_text([line([Span(f"{name} {view.words}")], screen)])


def operation_text(view: RunView, operation: Operation, screen: Screen) -> str:
    """`SESSION/RUN OP STATUS`, and where it is not over yet, that it is to stop."""
    stopping = ", to be cancelled" if operation.is_open and operation.cancel_requested_at else ""
    name = f"{say(view.run.session_id, screen)}/{say(view.run.run_id, screen)}"
    words = f"{name} {say(operation.operation_id, screen)} {operation.status.value}{stopping}"
    return lines_text([line([Span(words)], screen)])


def ended_text(view: RunView, screen: Screen) -> str:
    """How a run ended without a report, and why; empty for any other run."""
    if not view.run.is_over or view.run.report is not None:
        return ""
    name = f"{say(view.run.session_id, screen)}/{say(view.run.run_id, screen)}"
    reason = f": {say(view.run.reason, screen)}" if view.run.reason else ""
    ended = [Span("agentrun:", Style.BAD), Span(f" {name} ended as {view.words}{reason}")]
    return lines_text([line(ended, screen), f"  look back with: agentrun show {name}"])


def attention_text(view: RunView, screen: Screen, now: float | None = None) -> str:
    """What must be known or done about a run; empty if nothing."""
    from agentrun.render import hints

    return lines_text(hints.attention(view, screen, now))


def late_text(view: RunView, screen: Screen) -> str:
    """Of a run that is waited for: that its executor does not get on, and what to type."""
    return standing_text(view, screen) + attention_text(view, screen)


def accepted_line(accepted: Accepted) -> str:
    """`SESSION/RUN SEQ KIND`, for scripts."""
    words = (f"{accepted.session_id}/{accepted.run_id}", str(accepted.message_seq), accepted.mode)
    return " ".join(shown_line(word, unicode=False) for word in words) + "\n"


def accepted_text(accepted: Accepted, screen: Screen) -> str:
    """The same in words."""
    run = f"{say(accepted.session_id, screen)}/{say(accepted.run_id, screen)}"
    kind = say(accepted.mode, screen)
    behind = f" behind {say(accepted.behind, screen)}" if accepted.behind else ""
    return f"accepted as {kind} #{accepted.message_seq} of {run} ({accepted.status.value}{behind})\n"


def behind_text(ahead: RunView, screen: Screen) -> str:
    """Which run is waited for, by whoever waits for the slot; and what to do if nobody drives that one."""
    head = f"  queued behind {say(ahead.run.run_id, screen)} ({ahead.words}), Ctrl-C cancels\n"
    return head + attention_text(ahead, screen)


def hints_after_send(view: RunView, screen: Screen) -> str:
    """How to go on after a run in the foreground."""
    from agentrun.render import hints

    return lines_text(hints.hints_after_send(view, screen))


def hints_after_accept(accepted: Accepted, screen: Screen) -> str:
    """How to follow what goes on elsewhere."""
    from agentrun.render import hints

    return lines_text(hints.hints_after_accept(accepted, screen))
