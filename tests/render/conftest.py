"""Runs to draw, told by real events and folded by the real fold, so that they are states that can happen;
and a terminal to draw them on.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyte
import pytest

from agentrun.clock import timestamp
from agentrun.records.event import Event
from agentrun.records.inputs import Inputs
from agentrun.records.message import Message
from agentrun.records.operation import fold_operations
from agentrun.records.run import fold_run
from agentrun.records.session import Session
from agentrun.records.timeline import deliveries_of
from agentrun.records.views import RunDetail, RunView, SessionRow
from agentrun.render.live import Live
from agentrun.render.theme import Screen

START = 1_767_323_045.0  # 2026-01-02T03:04:05Z
ACTOR = {"user": "ann", "host": "tea", "pid": 4121}


class Story:
    """Writes the events and messages of one run, a second apart unless told otherwise."""

    def __init__(self, session_id: str = "session-0r5k", run_id: str = "run-1") -> None:
        self.session_id, self.run_id = session_id, run_id
        self.events: list[Event] = []
        self.messages: list[Message] = []
        self.now = START

    def event(self, kind: str, /, *, after: float = 1.0, **payload: Any) -> Event:
        self.now += after
        seq = len(self.events) + 1
        event = Event(self.session_id, self.run_id, seq, kind, timestamp(self.now), 1, payload)
        self.events.append(event)
        return event

    def message(self, role: str, mode: str, text: str, **fields: Any) -> Message:
        seq = len(self.messages) + 1
        message = Message(seq, self.session_id, self.run_id, role, mode, text, timestamp(self.now), **fields)
        self.messages.append(message)
        return message

    def accepted(self, text: str = "analyse why revenue dropped") -> Story:
        message = self.message("user", "prompt", text)
        self.event("run.accepted", messageSeq=message.seq, inputMode="prompt", agent="analyst", accountId="ann")
        return self

    def started(self, text: str = "analyse why revenue dropped") -> Story:
        self.accepted(text)
        self.event("run.lease_acquired", after=0, owner=ACTOR, attempt=1)
        self.event("run.started", after=0, inputMode="prompt", accountId="ann")
        self.delivered(1, "turn-1")
        return self

    def delivered(self, seq: int, turn: str) -> None:
        self.event("input.delivered", after=0, messageSeqs=[seq], mode="steer", turnId=turn)

    def asks_model(self, number: int, turn: str) -> None:
        self.event("model.request.started", operationId=f"op-{number}", turnId=turn, model="scripted", attempt=1)

    def model_says(self, number: int, text: str, *, calls: bool = False, **more: Any) -> None:
        payload = {
            "operationId": f"op-{number}",
            "status": "succeeded",
            "stopReason": "end_turn",
            "text": text,
        }
        listed = [{"id": "call-1", "name": "query_sales", "arguments": {}}] if calls else []
        self.event("model.request.finished", **payload, toolCalls=listed, attempt=1, **more)

    def tool(self, number: int, turn: str, name: str, arguments: Any = None, *, effect: str = "read") -> None:
        self.event(
            "tool.registered", operationId=f"op-{number}", turnId=turn, toolCallId=f"call-{number}",
            toolName=name, arguments=arguments or {}, effect=effect, idempotencyKey=f"key-{number}",
        )  # fmt: skip
        self.starts_tool(number, name)

    def starts_tool(self, number: int, name: str, attempt: int = 1) -> None:
        ids = {"operationId": f"op-{number}", "toolCallId": f"call-{number}"}
        self.event("tool.started", after=0, **ids, toolName=name, attempt=attempt)

    def tool_ends(self, number: int, status: str = "succeeded", **more: Any) -> None:
        payload = {"mayHaveEffects": False, "attempt": 1} | more
        self.event("tool.finished", operationId=f"op-{number}", status=status, **payload)

    def finished(self, status: str, reason: str | None = None, returned: tuple[int, ...] = ()) -> None:
        self.event(
            "run.finished", terminalStatus=status, reason=reason, report=None,
            unresolvedOperations=[], returnedInputs=list(returned),
        )  # fmt: skip

    def view(self, **seen: Any) -> RunView:
        run = fold_run(self.events)
        executor = "none" if run.is_over else "alive"
        return RunView(run, **({"status": run.status, "executor": executor} | seen))

    def detail(self, report: str | None = None, **seen: Any) -> RunDetail:
        view = self.view(**seen)
        inputs = Inputs(view.run, self.messages, deliveries_of(self.events))
        operations = tuple(fold_operations(self.events))
        return RunDetail(view, operations, tuple(self.messages), inputs, report)

    def session(self, title: str = "last night's live stream") -> Session:
        at = timestamp(START)
        return Session(
            session_id=self.session_id, account_id="ann", title=title, agent="analyst", archived=False,
            working_directory=None, remote_ids={}, forked_from=None, created_at=at, updated_at=at, revision=1,
        )  # fmt: skip

    def row(self, title: str = "last night's live stream", *, changed: float = START) -> SessionRow:
        return SessionRow(self.session(title), self.view(), timestamp(changed))


class Terminal(io.StringIO):
    """A terminal that interprets what is written to it, and counts the writes."""

    def __init__(self, columns: int = 90, rows: int = 24) -> None:
        super().__init__()
        self.screen = pyte.HistoryScreen(columns, rows, history=1000, ratio=0.5)
        self.emulator = pyte.Stream(self.screen)
        self.sent: list[str] = []

    def write(self, text: str, /) -> int:
        self.sent.append(text)
        # A terminal line turns a newline into carriage return and newline (termios(3), ONLCR).
        self.emulator.feed(text.replace("\n", "\r\n"))
        return len(text)

    def size(self) -> tuple[int, int]:
        return self.screen.columns, self.screen.lines

    @property
    def shown(self) -> list[str]:
        """What is on the screen, without the empty rows below."""
        rows = [row.rstrip() for row in self.screen.display]
        while rows and not rows[-1]:
            rows.pop()
        return rows

    @property
    def all(self) -> list[str]:
        """What has scrolled away, and what is on the screen."""
        past = ["".join(row[at].data for at in range(self.screen.columns)) for row in self.screen.history.top]
        return [*(row.rstrip() for row in past), *self.shown]


class Watch:
    """A terminal, a clock that is set by hand, and the view between them."""

    def __init__(self, columns: int = 90, rows: int = 24, *, colour: bool = False, now: float = 0) -> None:
        self.now = now
        self.terminal = Terminal(columns, rows)
        screen = Screen(columns, colour=colour, unicode=True, interactive=True)
        self.live = Live(screen, self.terminal, size=self.terminal.size, wall=lambda: self.now)

    def tell(self, run: Any) -> None:
        for message in run.messages:
            self.live.message(message)
        for event in run.events:
            self.live.event(event)
        self.tick(0.05)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.live.tick(self.now)


@pytest.fixture
def story() -> Callable[..., Story]:
    return Story


@pytest.fixture
def review() -> Story:
    """A run that met nearly everything, ended as completed."""
    told = Story().started()
    told.asks_model(1, "turn-1")
    told.model_says(1, "Looking at revenue and traffic.", calls=True)
    told.tool(2, "turn-1", "query_sales", {"sql": "select 1"})
    told.tool(3, "turn-1", "query_traffic", {"sql": "select 2"})
    told.tool_ends(2, result="1204 rows")
    told.tool_ends(3, "failed", error="exit code 75", willRetry=True, pauseMs=250)
    told.starts_tool(3, "query_traffic", attempt=2)
    told.tool_ends(3, result="60 rows", attempt=2)
    told.asks_model(4, "turn-2")
    told.model_says(4, "", question="Which products count as new?")
    told.message("assistant", "question", "Which products count as new?", question_id="q-1")
    told.event("run.waiting_input", questionId="q-1", kind="question", text="Which products count as new?")
    told.message("user", "answer", "Those of this week", question_id="q-1")
    told.event("run.input_received", questionId="q-1", messageSeq=3)
    told.message("user", "steer", "only new products")
    told.delivered(3, "turn-3")
    told.delivered(4, "turn-3")
    told.asks_model(5, "turn-3")
    told.model_says(5, "# Review\n\nRevenue dropped.", usage={"inputTokens": 900, "outputTokens": 100})
    told.finished("completed")
    told.message("assistant", "report", "# Review\n\nRevenue dropped.")
    return told


@pytest.fixture
def busy() -> Story:
    """A run with two tools under way, in its first turn."""
    run = Story().started()
    run.tool(1, "turn-1", "query_sales", {"sql": "select 1"})
    run.tool(2, "turn-1", "query_traffic", {"sql": "select 2"})
    return run


@pytest.fixture
def watching() -> Callable[..., Watch]:
    return Watch


@pytest.fixture
def plain_screen() -> Screen:
    return Screen(width=80, colour=False, unicode=True, interactive=False)


@pytest.fixture
def start() -> float:
    return START
