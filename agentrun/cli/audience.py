"""Who looks on where a run is executed or followed: a person at a terminal, a script that reads JSON, or nobody."""

from __future__ import annotations

import os
import sys

import anyio

from agentrun.cli import output
from agentrun.cli.options import Options
from agentrun.cli.outlet import Outlet
from agentrun.records.codec import Doc
from agentrun.records.event import Event
from agentrun.records.message import Message
from agentrun.records.views import RunDetail
from agentrun.render.json import json_line
from agentrun.render.live import Live
from agentrun.states import EventType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

# Seconds between two looks at something that does not change with time.
IDLE = 60.0


class JsonAudience:
    """Prints each event as the line that is stored."""

    can_answer = False
    keeps_what_it_hears = True

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet

    def event(self, event: Event) -> None:
        """Prints it."""
        self.outlet.write_bytes(json_line(event.to_doc()))

    def message(self, message: Message) -> None:
        """The stream is one of events."""

    def forgotten(self, event: Event) -> list[int]:
        """None: the stream is one of events."""
        return []

    def draft(self, text: str) -> None:
        """The stream is one of events."""

    def note(self, text: str) -> None:
        """A script reads in each line what it wants to know."""

    def tick(self) -> float:
        """Nothing to redraw."""
        return IDLE

    async def ask(self, waiting: Doc) -> str | None:
        """Nobody answers here."""
        return None

    def finish(self, detail: RunDetail | None) -> None:
        """Everything is printed, once it is read."""
        self.outlet.drain()


class TerminalAudience:
    """The live view on a terminal; on it, questions are asked right there."""

    keeps_what_it_hears = False

    def __init__(self, stream: TextIO, outlet: Outlet, options: Options) -> None:
        self.outlet = outlet
        self._live = Live(output.screen_of(stream, options), outlet, size=lambda: output.size_of(stream))
        self._draft = ""
        self.can_answer = output.is_terminal(sys.stdin)

    def event(self, event: Event) -> None:
        """Shows it."""
        if event.type == EventType.MODEL_REQUEST_STARTED:
            self._draft = ""
        self._live.event(event)

    def message(self, message: Message) -> None:
        """Shows it."""
        self._live.message(message)

    def forgotten(self, event: Event) -> list[int]:
        """The numbers of messages that are to come again before `event`: so much was said since."""
        return self._live.forgotten(event)

    def draft(self, text: str) -> None:
        """Shows it."""
        self._draft += text
        self._live.draft(self._draft)

    def whole_draft(self, text: str) -> None:
        """Shows the draft as it stands, for a viewer who reads it from the tree."""
        self._draft = ""
        self.draft(text)

    def note(self, text: str) -> None:
        """Says something that is none of the run's events."""
        self._live.pause()
        self.outlet.write(text)
        self._live.resume()

    def tick(self) -> float:
        """Redraws what changes with time."""
        self._live.tick()
        if not (self.outlet.is_read and self._live.is_redrawn):
            return IDLE
        due = self._live.next_tick()
        # Something that comes later is drawn when it comes, if it is due at once; else a moment later.
        return 0.1 if due is None else max(due, 0.02)

    async def ask(self, waiting: Doc) -> str | None:
        """Asks on the terminal. None when the user leaves with Ctrl-D."""
        self._live.pause()
        try:
            return await _ask(waiting, self.outlet)
        finally:
            self._live.resume()

    def finish(self, detail: RunDetail | None) -> None:
        """Takes the moving part away and says how the run stands."""
        self._live.finish(detail)
        self.outlet.drain()


class QuietAudience(JsonAudience):
    """A pipe reads the report at the end; nothing is shown before."""

    keeps_what_it_hears = False

    def event(self, event: Event) -> None:
        """Passes over it."""

    def note(self, text: str) -> None:
        """Says it beside the report."""
        output.say_in_passing(text)


Shown = JsonAudience | TerminalAudience


def audience_for(options: Options, *, patient: bool = False) -> Shown:
    """Who looks on: standard output's terminal, else standard error's, else a reader of JSON or of the report.

    For a viewer it is `patient`: it waits for its reader. An executor does not.
    """
    if options.json:
        return JsonAudience(Outlet(1, patient=patient))
    for fd, stream in ((1, sys.stdout), (2, sys.stderr)):
        if output.is_terminal(stream):
            return TerminalAudience(stream, Outlet(fd, patient=patient), options)
    return QuietAudience(Outlet(1, patient=patient))


async def _ask(waiting: Doc, outlet: Outlet) -> str | None:
    is_approval = waiting.get("kind") == "approval"
    while True:
        outlet.write("approve? [y/n] " if is_approval else "> ")
        try:
            line = await _line()
        except BaseException:
            # Answered from elsewhere, or stopped: what comes next must not stand behind the prompt.
            outlet.write("\n")
            raise
        if line is None:
            outlet.write("\n")
            return None
        text = line.strip()
        if not is_approval and text:
            return text
        if is_approval and text[:1].lower() in ("y", "n"):
            return "approved" if text[:1].lower() == "y" else "denied"


async def _line() -> str | None:
    """A line from the terminal, which hands out whole lines; waiting for it can be cancelled, unlike a thread."""
    await anyio.wait_readable(0)
    try:
        data = os.read(0, 1 << 16)
    except OSError:
        data = b""
    if not data and output.is_left(0):
        # Not Ctrl-D: the terminal was closed. Its SIGHUP decides about the run; until then others may answer.
        await anyio.sleep_forever()
    return data.decode("utf-8", "surrogateescape") if data else None
