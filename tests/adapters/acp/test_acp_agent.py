"""Agents that speak ACP: a small one of our own, as a real process, in a stretch without a disk."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from agentrun.adapters.acp import program, talk
from agentrun.adapters.acp.agent import AcpAgent
from agentrun.adapters.acp.transport import PeerTransport
from agentrun.adapters.agents import turns
from agentrun.adapters.agents.prompt import INTERRUPTED
from agentrun.adapters.process.procfs import read_proc
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.protocols import Conversation
from agentrun.config import AgentConfig
from agentrun.records.fields import PAYLOAD, wrong_field
from agentrun.records.message import Message
from agentrun.records.operation import Operation
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.stretch import FakeStretch

pytest.importorskip("acp", reason="needs the extra acp")
# Each test starts a Python program, and imports the library for the protocol the first time.
pytestmark = pytest.mark.slow

E = EventType
S = OperationStatus


def _path() -> dict[str, str]:
    """The package under test may be a copy of the installed one."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}


class Rig:
    """A directory with a small agent in it, and what that hears."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def agent(self, *flags: str, command: tuple[str, ...] = ()) -> AcpAgent:
        surroundings = Surroundings(
            root=str(self.directory / "root"),
            config_path=None,
            account="ann",
            session_id="session-test",
            run_id="run-1",
            scratch=str(self.directory),
            working_directory=str(self.directory),
            environment=_path() | {"HEARD": str(self.directory / "heard"), "KEY": "secret"},
        )
        command = command or (sys.executable, "-m", "agentrun.testing.acp_agent", *flags)
        config = AgentConfig("small", kind="acp", command=command)
        return AcpAgent(config, surroundings, directory=str(self.directory), secrets={"KEY"})

    def drive(self, stretch: FakeStretch, *flags: str, command: tuple[str, ...] = ()) -> RunStatus:
        return anyio.run(stretch.drive, self.agent(*flags, command=command))

    @property
    def heard(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "heard").read_text().splitlines()]

    def all_gone(self) -> bool:
        pids = [each["started"] for each in self.heard if "started" in each]
        found = [read_proc(pid) for pid in pids]
        return not any(one and one.alive for one in found)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def tools(stretch: FakeStretch) -> list[Operation]:
    return [each for each in stretch.operations if each.kind == "tool"]


def requests(stretch: FakeStretch) -> list[Operation]:
    return [each for each in stretch.operations if each.kind == "model"]


def test_what_it_says_is_the_draft_and_the_report(rig: Rig) -> None:
    # covers A26 A41
    stretch = FakeStretch("hello there")
    assert rig.drive(stretch) is RunStatus.COMPLETED
    assert stretch.report == "hello there "
    assert stretch.drafts == {"op-1": "hello there "}
    (request,) = requests(stretch)
    assert (request.name, request.status) == ("acp:small", S.SUCCEEDED)
    assert stretch.run.usage["inputTokens"] == 10
    start = rig.heard[0]
    assert start["cwd"] == str(rig.directory)
    assert "KEY" not in start["environment"]
    assert start["environment"]["AGENTRUN_RUN"] == "run-1"
    prompt = next(each for each in rig.heard if each.get("method") == "session/prompt")
    assert len(prompt["params"]["_meta"]["agentrun/idempotencyKey"]) == 32
    assert rig.all_gone()


def test_its_calls_are_operations(rig: Rig) -> None:
    stretch = FakeStretch("look read edit there")
    assert rig.drive(stretch) is RunStatus.COMPLETED
    read, edit = tools(stretch)
    assert (read.name, read.effect, read.status, read.result) == ("read a.txt", "read", S.SUCCEEDED, "read done")
    assert (edit.name, edit.effect, edit.arguments) == ("edit a.txt", "write", {"path": "a.txt"})
    assert stretch.report == "look \n\nthere "


def test_its_conversation_is_kept_and_loaded_again(rig: Rig) -> None:
    # covers A26
    first = FakeStretch("one")
    rig.drive(first)
    name = first.remote_ids.get("acp:small")
    assert name is not None
    assert name.startswith("small-")
    messages = [Message(1, "s", "run-0", "user", "prompt", "one", "")]
    second = FakeStretch("recall", conversation=Conversation(messages, {}))
    second.remote_ids.keep("acp:small", name)
    assert rig.drive(second) is RunStatus.COMPLETED
    # It has the first prompt by itself, and was told only the second; what it said while loading is no news.
    assert second.report == "['one']"
    assert second.remote_ids.get("acp:small") == name


@pytest.mark.parametrize("flags", [("no-load",), ()])
def test_one_that_has_forgotten_is_told_the_conversation(rig: Rig, flags: tuple[str, ...]) -> None:
    messages = [Message(1, "s", "run-0", "user", "prompt", "before", "")]
    stretch = FakeStretch("now", conversation=Conversation(messages, {}))
    stretch.remote_ids.keep("acp:small", "small-0")
    assert rig.drive(stretch, *flags) is RunStatus.COMPLETED
    assert "User: before" in str(stretch.report)
    assert stretch.remote_ids.get("acp:small") != "small-0"


def test_what_the_user_adds_meanwhile_is_the_next_turn(rig: Rig) -> None:
    stretch = FakeStretch("one")
    stretch.at(E.MODEL_REQUEST_STARTED, lambda at: at.steer("recall two"))
    assert rig.drive(stretch) is RunStatus.COMPLETED
    assert len(requests(stretch)) == 2
    assert stretch.report == "['one', 'recall']two "


@pytest.mark.parametrize(("flag", "report"), [("steering", "steered: north only"), ("steering-refused", "north only ")])
def test_a_steer_goes_into_the_turn_where_that_is_offered(rig: Rig, flag: str, report: str) -> None:
    stretch = FakeStretch("hang")

    def steer(op: str, piece: str, add: Any = stretch.draft) -> Any:
        if piece == "hanging ":
            stretch.steer("north only")
        return add(op, piece)

    stretch.draft = steer  # type: ignore[method-assign]
    assert rig.drive(stretch, flag) is RunStatus.COMPLETED
    assert stretch.report == report
    delivered = [event.payload for event in stretch.events if event.type == E.INPUT_DELIVERED]
    assert [(each["mode"], each["turnId"]) for each in delivered] == [("prompt", "turn-1"), ("steer", "turn-2")]
    assert [each.status for each in requests(stretch)] == [S.SUCCEEDED, S.SUCCEEDED]


# Permissions and questions.


@pytest.mark.parametrize(
    ("answer", "report", "status"),
    [("approved", "removed ", S.SUCCEEDED), ("denied", "not removed (no) \n\n## Gaps\n", S.SKIPPED)],
)
def test_a_permission_is_an_approval(rig: Rig, answer: str, report: str, status: S) -> None:
    stretch = FakeStretch("well permission")
    stretch.answers = [answer]
    assert rig.drive(stretch) is RunStatus.COMPLETED
    assert stretch.report is not None
    assert stretch.report.startswith(report)
    assert ("rm -r x" in stretch.report) is (answer == "denied"), "a call that was refused is a gap"
    (call,) = tools(stretch)
    assert (call.name, call.status, call.effect) == ("rm -r x", status, "write")
    waiting = next(event.payload for event in stretch.events if event.type == E.RUN_WAITING_INPUT)
    assert waiting["kind"] == "approval"
    assert waiting["operationId"] == call.operation_id
    assert waiting["text"] == 'May rm -r x be called (write)? Its arguments: {"command": "rm -r x"}'
    # It was the same turn of the agent all the time.
    assert sum(each.get("method") == "session/prompt" for each in rig.heard) == 1


def test_a_run_waits_on_disk_with_nothing_under_way_and_goes_on_with_the_permission(rig: Rig) -> None:
    # covers A40
    stretch = FakeStretch("well permission")
    assert rig.drive(stretch) is RunStatus.WAITING_INPUT
    assert rig.all_gone()
    assert [each.status for each in requests(stretch)] == [S.SUCCEEDED]
    assert S.RUNNING not in [each.status for each in stretch.operations]
    stretch.answer("approved")
    later = FakeStretch.after(stretch.events, stretch.messages)
    later.remote_ids.update(stretch.remote_ids)
    later.steer("permission")  # what this agent needs to be told to ask again
    assert rig.drive(later) is RunStatus.COMPLETED
    assert "removed" in str(later.report)
    # It was asked for once: the answer stands for the very same call.
    assert later.types().count(E.RUN_WAITING_INPUT) == 1
    prompt = [each for each in rig.heard if each.get("method") == "session/prompt"][-1]
    assert prompt["params"]["prompt"][0]["text"].startswith(f"{INTERRUPTED}\n\n[The user has allowed rm -r x]")


def test_an_elicitation_is_a_question(rig: Rig) -> None:
    stretch = FakeStretch("form")
    stretch.answers = ["blue"]
    assert rig.drive(stretch) is RunStatus.COMPLETED
    waiting = next(event.payload for event in stretch.events if event.type == E.RUN_WAITING_INPUT)
    assert (waiting["kind"], waiting["text"]) == ("question", "Which colour? (red, blue)")
    assert json.loads(str(stretch.report)) == {"action": "accept", "content": {"colour": "blue"}}


def test_what_is_not_offered_is_refused_and_the_turn_goes_on(rig: Rig) -> None:
    stretch = FakeStretch("terminal done")
    assert rig.drive(stretch) is RunStatus.COMPLETED
    assert stretch.report == "done "


# Ends.


@pytest.mark.parametrize(
    ("order", "status", "effects"), [("hang", None, None), ("hang-edit", S.SUCCEEDED, False)], ids=str
)
def test_a_stop_is_told_to_the_agent_which_says_what_became_of_its_calls(
    rig: Rig, order: str, status: S | None, effects: bool | None
) -> None:
    # covers A45 A46; case C7
    stretch = FakeStretch(order)

    def cancel(op: str, piece: str, add: Any = stretch.draft) -> Any:
        stretch.cancel()
        return add(op, piece)

    stretch.draft = cancel  # type: ignore[method-assign]
    assert rig.drive(stretch) is RunStatus.CANCELLED
    assert any(each.get("method") == "session/cancel" for each in rig.heard)
    assert [each.status for each in requests(stretch)] == [S.CANCELLED]
    assert [(each.status, each.may_have_effects) for each in tools(stretch)] == (
        [] if status is None else [(status, effects)]
    )
    assert stretch.open_at_end == ()
    assert rig.all_gone()


def test_one_that_dies_fails_the_run_with_its_last_words(rig: Rig) -> None:
    # covers A45
    stretch = FakeStretch("half die")
    assert rig.drive(stretch) is RunStatus.FAILED
    assert stretch.run.reason == "the agent acp:small failed: it has ended (exit 7): out of memory"
    assert [each.status for each in requests(stretch)] == [S.FAILED]


@pytest.mark.parametrize(
    ("reason", "says"),
    [("refusal", "refused"), ("max_tokens", "limit of tokens"), ("max_turn_requests", "gave up")],
)
def test_a_stop_reason_that_is_no_end_fails_the_run(rig: Rig, reason: str, says: str) -> None:
    stretch = FakeStretch(f"half stop:{reason}")
    assert rig.drive(stretch) is RunStatus.FAILED
    assert says in str(stretch.run.reason)


@pytest.mark.parametrize(
    ("flags", "command", "says"),
    [
        (("refuse",), (), "it has ended (exit 3): no licence"),
        (("no-greeting",), (), "it has ended (exit 0)"),
        ((), ("no-such-agent",), "cannot start 'no-such-agent'"),
    ],
)
def test_one_that_cannot_be_used_fails_the_run_and_says_why(
    rig: Rig, flags: tuple[str, ...], command: tuple[str, ...], says: str
) -> None:
    stretch = FakeStretch()
    assert rig.drive(stretch, *flags, command=command) is RunStatus.FAILED
    assert f"the agent acp:small cannot be used: {says}" in str(stretch.run.reason)


def test_one_that_never_answers_fails_the_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "STARTING_SECONDS", 0.1)
    stretch = FakeStretch()
    assert rig.drive(stretch, command=("cat",)) is RunStatus.FAILED


def test_one_that_remembers_goes_on_after_its_executor_is_gone(rig: Rig) -> None:
    stretch = FakeStretch("hang")

    def leave(op: str, piece: str, add: Any = stretch.draft) -> Any:
        stretch.hand_over()
        return add(op, piece)

    stretch.draft = leave  # type: ignore[method-assign]
    rig.drive(stretch)
    later = FakeStretch.after(stretch.events, stretch.messages)
    later.remote_ids.update(stretch.remote_ids)
    later.draft = lambda op, piece, add=later.draft: (later.cancel(), add(op, piece))[1]  # type: ignore[method-assign]
    rig.drive(later)
    prompt = [each for each in rig.heard if each.get("method") == "session/prompt"][-1]
    assert prompt["params"]["prompt"][0]["text"] == f"{INTERRUPTED}\n\nhang"


class _Prints:
    """A program that prints these bytes."""

    def __init__(self, printed: bytes) -> None:
        self._printed = [printed, b""]

    async def receive(self) -> bytes:
        return self._printed.pop(0)


# covers A26
def test_numbers_that_no_record_can_hold_arrive_as_text() -> None:
    line = b'{"rawInput":{"a":NaN,"b":-Infinity,"c":1e999,"d":' + b"7" * 5000 + b',"e":1.5}}\n'
    message = anyio.run(PeerTransport(_Prints(line), anyio.lowlevel.checkpoint).receive)  # type: ignore[arg-type]
    assert message == {"rawInput": {"a": "NaN", "b": "-Infinity", "c": "1e999", "d": "7" * 5000, "e": 1.5}}


# An agent that says the same line over and over, and notes how often; then it ends its turn.
TALKER = """
import json, sys
line, count, noted = json.loads(sys.argv[1]), int(sys.argv[2]), open(sys.argv[3], "w")
def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for asked in map(json.loads, sys.stdin):
    if asked["method"] == "initialize":
        say(id=asked["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif asked["method"] == "session/new":
        say(id=asked["id"], result={"sessionId": "s"})
    elif asked["method"] == "session/prompt":
        for number in range(count):
            print(number, file=noted, flush=True)
            sys.stdout.write(line + "\\n") if isinstance(line, str) else say(**line)
        say(id=asked["id"], result={"stopReason": "end_turn"})
"""


def talker(rig: Rig, line: Any, count: int) -> tuple[tuple[str, ...], Path]:
    noted = rig.directory / "noted"
    return (sys.executable, "-c", TALKER, json.dumps(line), str(count), str(noted)), noted


def update(**what: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"sessionId": "s", "update": what}}


def test_one_that_talks_faster_than_it_is_taken_up_has_to_wait(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # covers promise 16
    monkeypatch.setattr(talk, "MOST_WAITING", 10)
    monkeypatch.setattr(talk, "ROOM_SECONDS", 30.0)
    stretch = FakeStretch()
    chunk = update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "x" * 10_000})
    command, noted = talker(rig, chunk, 500)
    said: list[int] = []

    def slow(op: str, piece: str, add: Any = stretch.draft) -> Any:
        async def take() -> None:
            if not said:
                with anyio.move_on_after(1.0):
                    while len(noted.read_bytes().split()) < 500:  # noqa: ASYNC110 - another process counts
                        await anyio.sleep(0.01)
                said.append(len(noted.read_bytes().split()))
            await add(op, piece)

        return take()

    stretch.draft = slow  # type: ignore[method-assign]
    assert rig.drive(stretch, command=command) is RunStatus.COMPLETED
    # What waits, what one read brings and what a pipe holds.
    assert said[0] < 100
    assert stretch.report == "x" * 5_000_000


def test_one_that_says_more_than_anybody_has_to_say_is_stopped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # covers promise 16
    monkeypatch.setattr(turns, "MAX_TEXT", 100_000)
    stretch = FakeStretch()
    chunk = update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "x" * 10_000})
    command, _ = talker(rig, chunk, 1_000)
    assert rig.drive(stretch, command=command) is RunStatus.FAILED
    assert "said more than 100000 characters" in str(stretch.run.reason)


@pytest.mark.parametrize(
    "line",
    [
        "junk \x1b]0;owned\x07", "[1]", '"x"', '{"id":{"a":[1]},"result":5}', '{"id":[1],"method":"x"}',
        '{"id":7,"error":[1]}',
        '{"method":{"a":1}}', "[" * 100_000, update(sessionUpdate=7), {"method": "session/update", "params": [1]},
        {"method": "session/update", "params": {"update": [1]}},
        update(sessionUpdate="agent_message_chunk", content=[1]),
        update(sessionUpdate="tool_call", toolCallId={"a": 1}),
        {"id": 5, "method": "session/request_permission", "params": {"toolCall": [1], "options": 7}},
    ],
    ids=lambda line: str(line)[:30].encode("unicode_escape").decode(),
)  # fmt: skip
def test_what_is_no_message_costs_itself_alone(rig: Rig, line: Any) -> None:
    stretch = FakeStretch()
    command, _ = talker(rig, line, 1)
    status = rig.drive(stretch, command=command)
    # It said nothing that would be a report; whoever asks the user waits.
    assert status is RunStatus.WAITING_INPUT or "said nothing" in str(stretch.run.reason), stretch.run.reason


# What it says of its calls, and asks, of another form than the protocol has.
_ODD_AGENT = """
import json, sys
kind = sys.argv[1]
def say(message): print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)
def update(**what): say({"method": "session/update", "params": {"update": what}})
for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        offered = {"odd": ["x"], "unnamed": {"_meta": ["_session/steering"]}}.get(kind, 7)
        say({"id": number, "result": {"protocolVersion": 1, "agentCapabilities": offered}})
    elif method == "session/new" and kind == "refuses":
        say({"id": number, "error": "go away"})
    elif method == "session/new":
        say({"id": number, "result": {"sessionId": {"unnamed": {"a": 1}}.get(kind, "s-1")}})
    elif method == "session/prompt":
        for at, content in enumerate((5, True, "text", {"type": "content"}, [7], [{"type": "content", "content": 7}])):
            update(sessionUpdate="tool_call", toolCallId=f"c{at}", title=["t"], kind="read", status="in_progress")
            update(sessionUpdate="tool_call_update", toolCallId=f"c{at}", status="completed", content=content)
        form = {"properties": {"a": {"enum": 5}}}
        say({"id": "q", "method": "elicitation/create", "params": {"message": ["m"], "requestedSchema": form}})
        sys.stdin.readline()
        update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "done"})
        usage = {"inputTokens": 10**400, "outputTokens": -1}
        say({"id": number, "result": {"stopReason": ["end_turn"], "usage": usage}})
"""


def test_what_an_agent_says_in_another_form_says_nothing(rig: Rig) -> None:
    # covers promise 13
    (rig.directory / "odd.py").write_text(_ODD_AGENT)
    stretch = FakeStretch("go")
    stretch.answers = ["seven"]
    assert rig.drive(stretch, command=(sys.executable, "odd.py", "odd")) is RunStatus.COMPLETED
    assert stretch.report == "done"
    calls = [each for each in stretch.operations if each.kind == "tool"]
    assert [each.status for each in calls] == [S.SUCCEEDED] * 6
    for event in stretch.events:
        assert wrong_field(event.payload, PAYLOAD) is None, event


@pytest.mark.parametrize(("kind", "says"), [("refuses", "go away"), ("unnamed", "gave it no name")])
def test_a_conversation_that_is_refused_or_has_no_name(rig: Rig, kind: str, says: str) -> None:
    (rig.directory / "odd.py").write_text(_ODD_AGENT)
    stretch = FakeStretch("go")
    assert rig.drive(stretch, command=(sys.executable, "odd.py", kind)) is RunStatus.FAILED
    assert says in (stretch.run.reason or "")
