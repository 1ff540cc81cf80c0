"""What things look like: a mark and a colour for every status; plain ASCII and no colour where asked."""

from __future__ import annotations

from agentrun.named import NamedTuple, StrEnum
from agentrun.records.views import RunView
from agentrun.render.safe import columns_of, cut, shown_line
from agentrun.states import OperationStatus, RunStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class Screen(NamedTuple):
    """Where text goes. `width` in columns; `unicode`: the stream's encoding can hold every character;
    `interactive`: the cursor can be moved (a terminal that is not `dumb`)."""

    width: int
    colour: bool
    unicode: bool
    interactive: bool


class Style(StrEnum):
    """Parameters of SGR (ECMA-48, 8.3.117); only the eight colours that every palette makes readable."""

    PLAIN = ""
    STRONG = "1"
    DIM = "2"
    GOOD = "32"
    BAD = "31"
    CARE = "33"
    BUSY = "36"


class Mark(NamedTuple):
    """A sign of one column, its form in ASCII, and the colour of both."""

    sign: str
    plain: str
    style: Style


class Span(NamedTuple):
    """A piece of a line. Its text is safe already."""

    text: str
    style: Style = Style.PLAIN


R, O = RunStatus, OperationStatus  # noqa: E741 - short, since the tables below are read as tables

RUN_MARKS: dict[RunStatus, Mark] = {
    R.QUEUED: Mark("○", "o", Style.DIM),
    R.RUNNING: Mark("●", "*", Style.BUSY),
    R.WAITING_INPUT: Mark("?", "?", Style.CARE),
    R.COMPACTING: Mark("◐", "~", Style.BUSY),
    R.RECONCILING: Mark("!", "!", Style.CARE),
    R.CANCELLING: Mark("◌", "~", Style.CARE),
    R.COMPLETED: Mark("✓", "+", Style.GOOD),
    R.FAILED: Mark("✗", "x", Style.BAD),
    R.CANCELLED: Mark("■", "-", Style.CARE),
    R.TIMED_OUT: Mark("✗", "x", Style.BAD),
}

OPERATION_MARKS: dict[OperationStatus, Mark] = {
    O.PENDING: Mark("○", "o", Style.DIM),
    O.RUNNING: Mark("●", "*", Style.BUSY),
    O.SUCCEEDED: Mark("✓", "+", Style.GOOD),
    O.FAILED: Mark("✗", "x", Style.BAD),
    O.CANCELLED: Mark("■", "-", Style.CARE),
    O.TIMED_OUT: Mark("✗", "x", Style.BAD),
    O.SKIPPED: Mark("□", "-", Style.DIM),
    O.UNKNOWN: Mark("?", "?", Style.CARE),
}

USER = Mark("›", ">", Style.STRONG)
QUESTION = Mark("?", "?", Style.CARE)
NOTE = Mark("!", "!", Style.CARE)


def marked(mark: Mark, screen: Screen) -> Span:
    """The mark as this screen can show it."""
    return Span(mark.sign if screen.unicode else mark.plain, mark.style)


def paint(text: str, style: Style, screen: Screen) -> str:
    """Safe `text` in `style`, or as it is on a screen without colour."""
    return f"\x1b[{style.value}m{text}\x1b[0m" if screen.colour and style.value and text else text


def line(spans: Iterable[Span], screen: Screen, columns: int | None = None) -> str:
    """The spans as one line without its newline, cut to `columns` if given."""
    room = columns
    painted = []
    for span in spans:
        text = span.text if room is None else cut(span.text, room, unicode=screen.unicode)
        painted.append(paint(text, span.style, screen))
        if room is not None:
            if text != span.text:
                break
            room -= columns_of(text)
    return "".join(painted)


def lines_text(lines: Iterable[str]) -> str:
    """Lines as one text, each with its newline."""
    return "".join(f"{each}\n" for each in lines)


def say(text: str, screen: Screen) -> str:
    """Any text on one line, safe for `screen`."""
    return shown_line(text, unicode=screen.unicode)


def run_status(view: RunView, screen: Screen) -> list[Span]:
    """Mark, status and what else must be known of a run at a glance."""
    mark = marked(RUN_MARKS[view.status], screen)
    notes = "".join(f", {note}" for note in glance(view))
    return [mark, Span(f" {view.words}{notes}", mark.style)]


# An executor that only cannot renew its lease, for want of room or of a lock, is not called frozen.
_LATE = {
    "suspended": "executor suspended",
    "kept_waiting": "executor kept waiting",
    "no_room": "executor without room on its disk",
    "silent": "executor late",
    "elsewhere": "executor not responding",
}


def glance(view: RunView) -> list[str]:
    """Short words for what a status does not say."""
    notes = []
    if view.executor == "lost":
        notes.append("executor lost")
    elif view.executor == "frozen":
        notes.append(_LATE[view.late.cause] if view.late else "executor late")
    if view.stop_asked:
        notes.append("stop asked")
    if view.overdue:
        notes.append("overdue")
    if view.run.unresolved_operations:
        notes.append(f"{len(view.run.unresolved_operations)} unresolved")
    return notes
