"""`agentrun acp`: an editor drives sessions over stdin and stdout, and may go away at any moment."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrun.cli.acp.news import News
from agentrun.cli.acp.prompts import text_of
from agentrun.errors import UsageError
from agentrun.records.event import Event
from agentrun.states import EventType
from agentrun.testing.node import node_program
from tests.cli.conftest import PATIENCE

pytest.importorskip("acp", reason="needs the extra acp")
pytestmark = pytest.mark.slow

Doc = dict[str, Any]


class Editor:
    """Speaks the protocol by hand. `answers` are what the user says to requests of the agent, by method."""

    def __init__(self, home: Any, *arguments: str) -> None:
        argv = home.argv("acp", *arguments)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(argv, env=home.env, **pipes)
        self.updates: list[Doc] = []
        self.asked: list[Doc] = []
        self.answers: dict[str, Any] = {}
        self._next = 0
        hello = {"protocolVersion": 1, "clientCapabilities": {"elicitation": {"form": {}}}}
        self.hello = self.ask("initialize", hello)

    def send(self, **message: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def begin(self, method: str, params: Doc) -> int:
        self._next += 1
        self.send(id=self._next, method=method, params=params)
        return self._next

    def until(self, fits: Callable[[Doc], bool]) -> Doc:
        """Reads on, answering what is asked, to the first message that fits."""
        assert self.process.stdout
        while True:
            line = self.process.stdout.readline()
            assert line, self.process.stderr and self.process.stderr.read()
            message = json.loads(line)  # nothing else may stand on stdout
            if message.get("method") == "session/update":
                self.updates.append(message["params"]["update"])
            elif "method" in message:
                self.asked.append(message)
                answer = self.answers.get(message["method"])
                if answer is not None:
                    self.send(id=message["id"], result=answer)
            if fits(message):
                return dict(message)

    def end(self, number: int) -> Doc:
        return self.until(lambda message: message.get("id") == number and "method" not in message)

    def ask(self, method: str, params: Doc) -> Doc:
        message = self.end(self.begin(method, params))
        assert "error" not in message, message
        return dict(message["result"])

    def prompt(self, session: str, text: str) -> Doc:
        return self.ask("session/prompt", said(session, text))

    def new(self, cwd: object = "/") -> str:
        return str(self.ask("session/new", {"cwd": str(cwd), "mcpServers": []})["sessionId"])

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind)

    def calls(self) -> list[tuple[str, str]]:
        calls = [each for each in self.updates if each["sessionUpdate"].startswith("tool_call")]
        return [(each["toolCallId"], each["status"]) for each in calls]

    def leave(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE)


def said(session: str, text: str) -> Doc:
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


@pytest.fixture
def editor(home: Any) -> Iterator[Callable[..., Editor]]:
    editors: list[Editor] = []

    def make(*arguments: str) -> Editor:
        editors.append(Editor(home, *arguments))
        return editors[-1]

    yield make
    for each in editors:
        with each.process:
            each.process.kill()


def test_a_prompt_is_a_run_that_streams_and_ends(home: Any, editor: Callable[..., Editor], tmp_path: Path) -> None:
    # covers A41
    home.tool("count", "echo 12")
    home.model({"text": "I look.", "calls": [{"name": "count", "arguments": {"q": 1}}]}, {"text": "There are 12."})
    one = editor()
    assert one.hello["agentCapabilities"]["loadSession"] is True
    session = one.new(tmp_path)
    ended = one.prompt(session, "how many?")
    assert ended["stopReason"] == "end_turn"
    assert one.text() == "I look.There are 12."
    assert one.calls() == [("op-2", "pending"), ("op-2", "in_progress"), ("op-2", "completed")]
    assert home.status(f"{session}/run-1") == "completed"
    document = json.loads((home.session_dir(session) / "session.json").read_bytes())
    assert document["workingDirectory"] == str(tmp_path)
    assert one.leave() == 0


def test_a_session_is_loaded_with_what_was_said_and_done(home: Any, editor: Callable[..., Editor]) -> None:
    # covers A41
    home.tool("count", "echo 12")
    home.model({"calls": [{"name": "count"}]}, {"text": "There are 12."})
    session = home.new("lamps")
    home.run("send", session, "how many?")
    one = editor()
    listed = one.ask("session/list", {})["sessions"]
    assert [(each["sessionId"], each["title"]) for each in listed] == [(session, "lamps")]
    one.ask("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
    assert [each["sessionUpdate"] for each in one.updates] == [
        "user_message_chunk",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
    ]
    assert one.text("user_message_chunk") == "how many?"
    assert one.prompt(session, "again?")["stopReason"] == "end_turn"
    assert len(list(home.session_dir(session).glob("runs/*"))) == 2


@pytest.mark.parametrize(("option", "status"), [("allow", "succeeded"), ("deny", "skipped")])
def test_a_permission_is_asked_for_and_given_in_the_editor(
    home: Any, editor: Callable[..., Editor], option: str, status: str
) -> None:
    home.tool("export", "echo done", effect="write")
    home.model({"calls": [{"name": "export"}]}, {"text": "That is all."})
    one = editor()
    one.answers["session/request_permission"] = {"outcome": {"outcome": "selected", "optionId": option}}
    session = one.new()
    assert one.prompt(session, "go")["stopReason"] == "end_turn"
    (asked,) = one.asked
    assert asked["params"]["toolCall"]["toolCallId"] == "op-2"
    (finished,) = home.events(f"{session}/run-1", "tool.finished")
    assert finished["payload"]["status"] == status


def test_a_permission_that_is_given_elsewhere_is_not_waited_for(home: Any, editor: Callable[..., Editor]) -> None:
    home.tool("export", "echo done", effect="write")
    home.model({"calls": [{"name": "export"}]}, {"text": "That is all."})
    one = editor()
    session = one.new()
    number = one.begin("session/prompt", said(session, "go"))
    one.until(lambda message: message.get("method") == "session/request_permission")
    assert home.run("approve", session).code == 0
    assert one.end(number)["result"]["stopReason"] == "end_turn"


def test_a_question_is_a_form_or_the_next_prompt(home: Any, editor: Callable[..., Editor]) -> None:
    home.model({"ask": "Which colour?"}, {"ifContains": "red", "text": "Red it is."})
    one = editor()
    one.answers["elicitation/create"] = {"action": "accept", "content": {"answer": "red"}}
    assert one.prompt(one.new(), "go")["stopReason"] == "end_turn"
    assert one.text().endswith("Which colour?Red it is.")
    two = editor()
    two.answers["elicitation/create"] = {"action": "decline"}
    session = two.new()
    assert two.prompt(session, "go")["stopReason"] == "end_turn"
    assert two.text() == "Which colour?"
    two.prompt(session, "red, please")
    assert two.text().endswith("Red it is.")
    assert len(list(home.session_dir(session).glob("runs/*"))) == 1


def test_cancel_cancels_the_run(home: Any, editor: Callable[..., Editor]) -> None:
    # covers A46
    home.tool("slow", "sleep 1000")
    home.model({"calls": [{"name": "slow"}]})
    one = editor()
    session = one.new()
    number = one.begin("session/prompt", said(session, "go"))
    one.until(lambda message: ("op-2", "in_progress") in one.calls())
    one.send(method="session/cancel", params={"sessionId": session})
    assert one.end(number)["result"] == {"stopReason": "cancelled"}
    assert home.status(f"{session}/run-1") == "cancelled"
    assert home.marked(session) == []


def test_a_steer_is_injected_into_the_run(home: Any, editor: Callable[..., Editor]) -> None:
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"ifContains": "north", "text": "North."}, {"text": "All."})
    one = editor()
    session = one.new()
    assert one.ask("_session/steering", said(session, "x"))["outcome"] in ("promptRequired", "failed")
    number = one.begin("session/prompt", said(session, "go"))
    one.until(lambda message: ("op-2", "in_progress") in one.calls())
    assert one.ask("_session/steering", said(session, "only the north")) == {"outcome": "injected"}
    home.open_gate()
    assert one.end(number)["result"]["stopReason"] == "end_turn"
    assert one.text().endswith("North.")


@pytest.mark.parametrize("how", ["leave", "kill", "close"])
def test_an_editor_that_goes_away_stops_nothing(home: Any, editor: Callable[..., Editor], how: str) -> None:
    # covers A40 A41
    home.tool("wait", home.gate())
    home.model({"calls": [{"name": "wait"}]}, {"text": "All."})
    one = editor()
    session = one.new()
    number = one.begin("session/prompt", said(session, "go"))
    one.until(lambda message: ("op-2", "in_progress") in one.calls())
    match how:
        case "leave":
            assert one.leave() == 0
        case "kill":
            one.process.kill()
        case _:
            one.ask("session/close", {"sessionId": session})
            del number
    home.open_gate()
    home.wait_for_status(f"{session}/run-1", "completed")


def test_what_goes_wrong_is_said_in_the_protocol(home: Any, editor: Callable[..., Editor]) -> None:
    one = editor()
    unknown = one.end(one.begin("session/load", {"sessionId": "session-0", "cwd": "/"}))
    assert unknown["error"]["code"] == -32002
    assert one.end(one.begin("session/nosuch", {}))["error"]["code"] == -32601
    session = one.new()
    empty = one.end(one.begin("session/prompt", {"sessionId": session, "prompt": []}))
    assert empty["error"]["message"] == "the prompt has no text"
    home.model({"text": "{{op:nosuch}}"})
    failed = one.end(one.begin("session/prompt", said(session, "go")))
    assert "run-1 is failed" in failed["error"]["message"]
    hostile = one.end(one.begin("session/load", {"sessionId": "../../x", "cwd": "/"}))
    assert "error" in hostile


HOSTILE = (
    b"junk \x1b]0;owned\x07", b"[1]", b'"x"', b"5", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000 + b"}" * 50_000,
    b'{"jsonrpc":"2.0","id":{"a":[1]},"method":"session/new"}', b'{"jsonrpc":"2.0","id":1,"method":7}',
    b'{"jsonrpc":"2.0","id":1,"error":[1]}',
)  # fmt: skip


def test_what_is_no_message_is_answered_so_and_costs_itself_alone(home: Any, editor: Callable[..., Editor]) -> None:
    one = editor()
    assert one.process.stdin
    for line in HOSTILE:
        one.process.stdin.write(line + b"\n")
        one.process.stdin.flush()
        assert one.until(lambda message: "error" in message)["error"]["code"] == -32700, line
    one.process.stdin.write(b'{"jsonrpc":"2.0","method":"session/cancel","params":[1]}\n{}\n\n')
    home.model({"text": "well"})
    assert one.prompt(one.new(), "go")["stopReason"] == "end_turn"
    assert one.leave() == 0
    # Nothing of what it came over is told on standard error: an editor shows that to nobody, or raw.
    assert one.process.stderr
    assert one.process.stderr.read() == b""


def test_an_unknown_agent_is_said_before_anything_is_served(home: Any) -> None:
    assert home.run("acp", "--agent", "nobody").code == 13


def test_a_foreign_client_from_npm_drives_a_session(home: Any, tmp_path: Path) -> None:
    program = node_program("acpx", "acpx")
    home.model({"text": "All is well."})
    agent = " ".join(home.argv("acp"))
    argv = [program, "--agent", agent, "--approve-all", "--cwd", str(tmp_path), "exec", "how is it?"]
    done = subprocess.run(argv, env=home.env, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert "All is well." in done.stdout.decode()


@pytest.mark.parametrize("blocks", [None, True, 7, "text", {"type": "text"}, [], [7], [{"type": "text", "text": " "}]])
def test_a_prompt_of_another_form_has_no_text(blocks: object) -> None:
    with pytest.raises(UsageError, match="no text"):
        text_of(blocks)


def test_words_that_are_there_before_their_request_is_told_are_said_once() -> None:
    # covers A41
    def event(seq: int, kind: EventType, **payload: Any) -> Event:
        return Event("s", "run-1", seq, kind.value, "at", 1, payload)

    news = News()
    told = [
        *news.of_draft("I "),
        *news.of_event(event(1, EventType.MODEL_REQUEST_STARTED)),
        *news.of_draft("I look"),
        *news.of_event(event(2, EventType.MODEL_REQUEST_FINISHED, text="I look.")),
        *news.of_draft("I look."),
    ]
    assert [each["content"]["text"] for each in told] == ["I look", "."]
