"""Tools of MCP servers: what they are told, what comes back, and what becomes of a call whose server goes away."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from agentrun.adapters.agents.equipped import EquippedAgent
from agentrun.adapters.agents.held import Held
from agentrun.adapters.mcp import server, tools
from agentrun.adapters.mcp.server import McpServer
from agentrun.adapters.process import peer
from agentrun.adapters.process.procfs import read_proc
from agentrun.adapters.surroundings import Surroundings
from agentrun.agent.loop import LoopAgent
from agentrun.agent.protocols import Limits, Tool
from agentrun.config import McpConfig
from agentrun.records.operation import Operation
from agentrun.states import EventType, OperationStatus, RunStatus
from agentrun.testing.fakes import FakeTool, outcomes, scripted
from agentrun.testing.stretch import FakeStretch

pytest.importorskip("mcp", reason="needs the extra mcp")

E = EventType
S = OperationStatus
SMALL = Path(__file__).with_name("small_server.py")


class Rig:
    """One server, and runs whose model calls its tools."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {"PATH": os.environ["PATH"], "SECRET": "s3", "TOKEN": "t0ken"}

    @property
    def heard(self) -> list[dict[str, Any]]:
        """What the server was told, line by line; the first says how it was started."""
        return [json.loads(line) for line in (self.directory / "heard").read_text().split("\n")[:-1]]

    def methods(self) -> list[str]:
        return [each["method"] for each in self.heard if "method" in each]

    def server(self, **config: Any) -> McpServer:
        env = {"HEARD": str(self.directory / "heard")} | config.pop("env", {})
        config = {"command": sys.executable, "args": (str(SMALL),), "env": env, "approve": "auto"} | config
        surroundings = Surroundings(
            root=str(self.directory / "root"),
            config_path=None,
            account="ann",
            session_id="session-test",
            run_id="run-1",
            scratch=str(self.directory),
            working_directory="/",
            environment=self.environment,
        )
        config = McpConfig("small", **config)
        return McpServer(config, surroundings, directory=str(self.directory), secrets={"SECRET"})

    def call(self, name: str, stretch: FakeStretch | None = None, **config: Any) -> Operation:
        """Has the model call one tool; how the call stands in the end."""
        stretch = self.run(stretch, {"name": name, "arguments": {"a": 1}}, **config)
        (operation,) = [each for each in stretch.operations if each.kind == "tool"]
        return operation

    def run(
        self, stretch: FakeStretch | None, *calls: dict[str, Any], own: tuple[Tool, ...] = (), **config: Any
    ) -> FakeStretch:
        stretch = stretch or FakeStretch()
        turns = [{"calls": [call]} for call in calls]

        def make(given: Any) -> LoopAgent:
            return LoopAgent(scripted(*turns, {"text": "done"}), given, Limits(), "")

        anyio.run(stretch.drive, EquippedAgent(make, own, [self.server(**config)]))
        return stretch


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that goes by itself has heard all that it was told, however busy the machine is."""
    monkeypatch.setattr(peer, "CLOSING_SECONDS", 30.0)


def test_a_tool_of_a_server_is_called_like_any_other(rig: Rig) -> None:
    stretch = rig.run(None, {"name": "small_echo", "arguments": {"q": "lamps"}})
    assert stretch.run.status is RunStatus.COMPLETED
    (operation,) = [each for each in stretch.operations if each.kind == "tool"]
    assert (operation.status, operation.effect) == (S.SUCCEEDED, "read")
    # The idempotency key goes along as `_meta`.
    assert operation.result == f'{{"q": "lamps"}}\n{operation.idempotency_key}'


@pytest.mark.usefixtures("patient")
def test_the_server_is_started_once_with_what_it_is_to_have_and_ends_with_the_stretch(rig: Rig) -> None:
    # covers A46
    config = {"env": {"HEARD": str(rig.directory / "heard"), "KEY": "${TOKEN}"}, "grace": 0.1}
    call = {"name": "small_echo"}
    rig.run(None, call, call, **config)
    start, *heard = rig.heard
    assert rig.methods().count("initialize") == 1
    assert rig.methods().count("tools/call") == 2
    environment = start["environment"]
    assert environment["KEY"] == "t0ken"
    assert "SECRET" not in environment
    assert (environment["AGENTRUN_RUN"], environment["AGENTRUN_OPERATION"]) == ("run-1", "mcp:small")
    assert start["cwd"] == str(rig.directory)
    assert heard[-1] == {"closed": True}
    one = read_proc(start["pid"])
    assert one is None or not one.alive


@pytest.mark.parametrize(
    ("config", "name", "effect", "approve"),
    [
        ({}, "echo", "read", "auto"),
        ({}, "write.it", "write", "ask"),
        ({"effect": "read"}, "write.it", "read", "auto"),
        ({"effect": "read", "write": ("write.it",)}, "write.it", "write", "ask"),
        ({"write": ("echo",)}, "echo", "write", "ask"),
        ({"read": ("write.it",)}, "write.it", "read", "auto"),
        ({"approve": "ask"}, "echo", "read", "ask"),
        ({"approve": "deny"}, "write.it", "write", "deny"),
    ],
)
def test_read_or_write_is_what_is_configured_or_what_the_server_says(
    rig: Rig, config: dict[str, Any], name: str, effect: str, approve: str
) -> None:
    async def main() -> None:
        async with rig.server(**{"approve": None} | config).connected() as connection:
            found = {tool.spec.name: tool.spec for tool in tools.tools_of(connection, None)}  # type: ignore[arg-type]
            spec = found[tools.exposed_name("small", name)]
            assert (spec.effect, spec.approve) == (effect, approve)
            assert spec.description == f"does {name}"
            assert "small_slow_task" in found  # it is on the second page

    anyio.run(main)


def test_a_name_that_models_do_not_take_is_spelled_so_that_they_do(rig: Rig) -> None:
    assert rig.call("small_write_it").status is S.SUCCEEDED


def test_only_the_tools_that_are_wanted_are_offered(rig: Rig) -> None:
    assert rig.call("small_echo", tools=("fail",)).status is S.SKIPPED


def test_two_tools_of_one_name_fail_the_run(rig: Rig) -> None:
    stretch = rig.run(None, own=(FakeTool("small_echo", outcomes()),))
    assert stretch.run.reason == "two tools are called 'small_echo'; rename one of them, or its MCP server"


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"command": "no-such-server"}, "cannot start 'no-such-server'"),
        ({"env": {"REFUSE": "no licence"}}, "the server has ended (exit 3): no licence"),
        ({"args": ("${NOWHERE}",)}, "the variable NOWHERE, which is not set"),
        ({"command": "cat", "args": ("/dev/null",)}, "the server has ended (exit 0)"),
    ],
)
def test_a_server_that_cannot_be_used_fails_the_run_and_says_why(rig: Rig, config: dict[str, Any], says: str) -> None:
    stretch = rig.run(None, **config)
    assert stretch.run.status is RunStatus.FAILED
    assert "the MCP server 'small' cannot be used: " in str(stretch.run.reason)
    assert says in str(stretch.run.reason)


def test_a_server_that_never_answers_fails_the_run(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STARTING_SECONDS", 0.1)
    stretch = rig.run(None, command="sleep", args=("1000",), grace=0.1)
    assert "did not answer within 0.1 s" in str(stretch.run.reason)


@pytest.mark.parametrize(
    ("pages", "says"),
    [
        ({"tools": 400}, "it offers more than 1000 tools"),
        ({"tools": 1001}, "it offers more than 1000 tools"),
        ({"tools": 0}, "it offers more than 7 pages of tools"),
        ({"tools": 1, "pad": 5 << 20}, "it said more than 4 MiB at once"),
    ],
)
def test_a_server_with_endless_tools_fails_the_run_and_says_what_to_do(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, pages: dict[str, int], says: str
) -> None:
    """# covers promise 16"""
    monkeypatch.setattr(server, "MOST_PAGES", 7)
    stretch = rig.run(None, env={"HEARD": str(rig.directory / "heard"), "PAGES": json.dumps(pages)}, grace=0.1)
    assert stretch.run.status is RunStatus.FAILED
    assert f"the MCP server 'small' cannot be used: {says}" in str(stretch.run.reason)
    if "offers" in says:
        assert 'tools = ["..."] in [mcp.small]' in str(stretch.run.reason)
    assert rig.methods().count("tools/list") <= 7


def test_of_endless_tools_those_that_are_named_are_found(rig: Rig) -> None:
    pages = {"HEARD": str(rig.directory / "heard"), "PAGES": '{"tools": 600}'}

    async def main() -> None:
        async with rig.server(env=pages, tools=("t3", "t1300")).connected() as connection:
            assert [tool.name for tool in connection.tools] == ["t3", "t1300"]

    anyio.run(main)
    # The next page was not asked for.
    assert rig.methods().count("tools/list") == 3


def test_a_stop_ends_a_server_that_lists_without_end(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    # covers A46
    monkeypatch.setattr(server, "MOST_PAGES", 1 << 60)
    pages = {"HEARD": str(rig.directory / "heard"), "PAGES": '{"tools": 0}'}

    async def main() -> None:
        held = Held(rig.server(env=pages, grace=0.1).connected)
        async with anyio.create_task_group() as group:
            group.start_soon(held.hold)
            while not (rig.directory / "heard").exists() or rig.methods().count("tools/list") < 5:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            held.let_go()

    anyio.run(main)
    one = read_proc(rig.heard[0]["pid"])
    assert one is None or not one.alive


class Name(str):
    """A name that counts how often one is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_many_tools_are_not_compared_each_with_each(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes the square of their number keeps a cancel and the time limit waiting."""
    monkeypatch.setattr(Name, "compared", 0)
    many = tuple(FakeTool(Name(f"t{number}"), outcomes()) for number in range(1000))
    assert rig.run(None, own=many).run.status is RunStatus.COMPLETED
    assert Name.compared < 10 * len(many)


def test_what_a_server_prints_besides_the_protocol_is_passed_over(rig: Rig) -> None:
    assert rig.call("small_echo", env={"GREETING": "Welcome! \u2028"}).status is S.SUCCEEDED


# What comes back.


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("picture", "[image/png, 8 bytes]"),
        ("mixed", "a dot:\n[image/png, 8 bytes]"),
        ("structured", '{"lamps": 12}'),
        ("much", "x" * 200_000),
    ],
)
def test_what_a_model_is_shown_of_an_answer(rig: Rig, name: str, shown: str) -> None:
    assert rig.call(f"small_{name}").result == shown


def test_a_tool_that_says_it_has_failed_has_failed_and_done_nothing(rig: Rig) -> None:
    operation = rig.call("small_fail")
    assert (operation.status, operation.error, operation.may_have_effects) == (S.FAILED, "no such table", False)


def test_an_answer_that_is_none_is_a_failure(rig: Rig) -> None:
    operation = rig.call("small_garbage")
    assert operation.status is S.FAILED
    assert "its answer is none" in str(operation.error)


def test_progress_is_recorded(rig: Rig) -> None:
    stretch = rig.run(None, {"name": "small_progress"})
    assert [e.payload["text"] for e in stretch.events if e.type == E.TOOL_PROGRESS] == ["3 of 10: counting"]


# Tasks.


def test_the_id_of_a_task_is_stored_as_soon_as_there_is_one(rig: Rig) -> None:
    # covers A34
    stretch = FakeStretch()
    operation = rig.call("small_task", stretch)
    assert (operation.status, operation.result, operation.remote_id) == (S.SUCCEEDED, "the task is done", "task-1")
    types = stretch.types()
    assert types.index(E.TOOL_REMOTE_ID) < types.index(E.TOOL_FINISHED)
    assert rig.methods().count("tasks/get") == 2


def test_a_task_that_is_named_with_the_answer_is_stored_too(rig: Rig) -> None:
    # covers A34
    assert rig.call("small_related").remote_id == "job-9"


def test_a_stop_cancels_the_task(rig: Rig) -> None:
    # covers A46
    stretch = FakeStretch()
    stretch.at(E.TOOL_REMOTE_ID, FakeStretch.cancel)
    operation = rig.call("small_slow_task", stretch)
    assert (operation.status, operation.may_have_effects, operation.remote_id) == (S.CANCELLED, True, "task-2")
    (cancel,) = [each for each in rig.heard if each.get("method") == "tasks/cancel"]
    assert cancel["params"]["taskId"] == "task-2"


# Stops.


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("name", "effects"), [("slow", False), ("slow_write", True)])
def test_a_stop_reaches_the_server(rig: Rig, name: str, effects: bool) -> None:
    # covers A45 A46
    stretch = FakeStretch()
    stretch.at(E.TOOL_STARTED, _cancel_once(rig, "tools/call"))
    operation = rig.call(f"small_{name}", stretch)
    assert stretch.run.status is RunStatus.CANCELLED
    assert (operation.status, operation.may_have_effects) == (S.CANCELLED, effects)
    (call,) = [each for each in rig.heard if each.get("method") == "tools/call"]
    (cancel,) = [each for each in rig.heard if each.get("method") == "notifications/cancelled"]
    assert cancel["params"]["requestId"] == call["id"]
    one = read_proc(rig.heard[0]["pid"])
    assert one is None or not one.alive


def _cancel_once(rig: Rig, method: str) -> Callable[[FakeStretch], None]:
    """Cancels the run as soon as the server has heard `method`."""

    def look(stretch: FakeStretch) -> None:
        if method in rig.methods():
            stretch.cancel()
        else:
            asyncio.get_running_loop().call_later(0.01, look, stretch)

    return look


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("name", "effects"), [("slow", False), ("slow_write", True)])
def test_a_time_out_reaches_the_server(rig: Rig, name: str, effects: bool) -> None:
    # covers A45 A46
    operation = rig.call(f"small_{name}", timeout=0.2)
    assert (operation.status, operation.may_have_effects) == (S.TIMED_OUT, effects)
    assert "notifications/cancelled" in rig.methods()


def test_a_server_that_dies_fails_the_call_and_each_after_it(rig: Rig) -> None:
    # Its stdout is held open by a process that it left.
    stretch = rig.run(None, {"name": "small_die"}, {"name": "small_write_it"}, {"name": "small_echo"})
    assert stretch.run.status is RunStatus.COMPLETED
    calls = [each for each in stretch.operations if each.kind == "tool"]
    died = "the server has ended (exit 7): out of memory"
    assert [(each.status, each.error) for each in calls] == [(S.FAILED, died)] * 3
    # Only of the first was anything sent.
    assert [each.may_have_effects for each in calls] == [True, False, False]


# What a server repeats of what it was given: each is told where it could be one.
_TOLD = "bad key-of-ours-77 (Bearer t0ken-0123456789, t0ken-0123456789) in lamps"
_GIVEN = {"API_KEY": "key-of-ours-77", "AUTH": "Bearer ${TOKEN}", "WHERE": "lamps", "FAILS_WITH": _TOLD}
_SAFE = "bad [redacted] ([redacted], [redacted]) in lamps"


def test_what_a_server_was_given_is_not_in_its_errors(rig: Rig) -> None:
    # covers promise 15
    rig.environment["TOKEN"] = "t0ken-0123456789"
    env = _GIVEN | {"HEARD": str(rig.directory / "heard")}
    operation = rig.call("small_fail", env=env)
    assert (operation.status, operation.error, operation.result) == (S.FAILED, _SAFE, _SAFE)
    stretch = rig.run(None, env=env | {"REFUSE": "x" * 1990 + _TOLD})
    assert stretch.run.status is RunStatus.FAILED
    assert _SAFE in (stretch.run.reason or "")
    assert rig.heard[0]["environment"]["AUTH"] == "Bearer t0ken-0123456789"


def test_what_a_server_over_http_was_sent_is_not_in_errors(rig: Rig) -> None:
    # covers promise 15
    rig.environment["TOKEN"] = "t0ken-0123456789"
    config = {
        "url": "http://ann:pass-word@h/${TOKEN}?key=query-key",
        "headers": {"X-Api-Key": "literal", "A": "b-c-d-e"},
    }
    server = McpServer(McpConfig("m", **config), rig.server()._surroundings, directory=".", secrets=())
    text = "t0ken-0123456789 pass-word query-key literal b-c-d-e"
    assert server.without_secrets(text) == "[redacted] [redacted] [redacted] [redacted] b-c-d-e"
